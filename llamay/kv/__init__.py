"""Pages, page tables and who owns them."""

"""The terminal interface (comes with its own issue)."""

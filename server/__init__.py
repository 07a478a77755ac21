"""The HTTP surface (comes with its own issue)."""

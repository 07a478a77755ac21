"""Pages of keys and values, and the tables that say which sequence's positions they hold."""

from llamay.kv.pages import Pages
from llamay.kv.table import Table

__all__ = ["Pages", "Table"]

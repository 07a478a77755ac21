"""Pages of keys and values: contexts that share them, a tree that remembers them, and the counts between."""

from llamay.kv.cache import Cache, Copy
from llamay.kv.context import Context
from llamay.kv.pages import Pages
from llamay.kv.stats import ContextStats, Counters, GroupStats, Stats
from llamay.kv.table import Table

__all__ = ["Cache", "Context", "ContextStats", "Copy", "Counters", "GroupStats", "Pages", "Stats", "Table"]

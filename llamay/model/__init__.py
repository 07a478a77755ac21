"""Binding weights to a Program, with the account of what was left unread."""

from llamay.model.bind import Bound, bind, bind_tensors, head_order
from llamay.model.claims import Audit, Stored
from llamay.model.finish import Finish

__all__ = ["Audit", "Bound", "Finish", "Stored", "bind", "bind_tensors", "head_order"]

"""Binding weights to a Program, with the account of what was left unread."""

from llamay.model.bind import Bound, bind, bind_tensors, head_order
from llamay.model.claims import Audit, Stored

__all__ = ["Audit", "Bound", "Stored", "bind", "bind_tensors", "head_order"]

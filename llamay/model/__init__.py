"""Binding weights to a Program, with the account of what was left unread."""

from llamay.model.bind import Bound, bind, head_order
from llamay.model.claims import Audit

__all__ = ["Audit", "Bound", "bind", "head_order"]

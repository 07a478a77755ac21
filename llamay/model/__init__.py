"""Weight binding with the unread audit, and the forward program."""

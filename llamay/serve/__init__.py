"""The engine above one model: sessions, and later the scheduler.  No HTTP here."""

"""The engine: requests in, events out, any number of them at once on one thread per process.  No HTTP here."""

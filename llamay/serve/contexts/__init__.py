"""Contexts that outlive a request: kept on a shelf by id, found again, gone on from."""

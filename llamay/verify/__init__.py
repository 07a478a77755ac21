"""What llamay promises of its numbers, checked on this machine with this model."""

"""Content-addressed blobs and manifests under ~/.llamay/models, and how models get there."""

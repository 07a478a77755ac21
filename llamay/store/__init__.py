"""Content-addressed blobs and manifests under ~/.llamay/models, and how models get there.

`Store(root)` is the folder, `resolve(store, name)` the path of a model's GGUF file,
`find(store, name)` its entry; `llamay.store.pull.pull(store, source)` brings one here.
"""

from llamay.store.library import Installed, Store, Survey
from llamay.store.names import ModelName
from llamay.store.resolve import find, resolve

__all__ = ["Installed", "ModelName", "Store", "Survey", "find", "resolve"]

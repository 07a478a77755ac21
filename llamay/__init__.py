"""llamay: a local-first inference engine for GGUF models whose compute is WGSL.

Importing this package starts nothing and loads neither numpy nor a GPU.
"""

__version__ = "0.1.0"

"""The GGUF file format: parsed from one mapping with every length checked, and written."""

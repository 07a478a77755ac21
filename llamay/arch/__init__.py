"""From GGUF metadata to a Config, or a refusal by name."""

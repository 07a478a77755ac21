"""Anthropic's API: messages and count_tokens."""

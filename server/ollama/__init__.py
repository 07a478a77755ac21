"""Ollama's API: generate, chat, embed, and the models of the store."""

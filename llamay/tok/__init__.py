"""Text to token ids and back."""

from llamay.tok.tokenizer import Tokenizer, load
from llamay.tok.vocabulary import Vocabulary

__all__ = ["Tokenizer", "Vocabulary", "load"]

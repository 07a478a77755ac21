"""Text to token ids and back, as streams too, and conversations to text."""

from llamay.tok.decoder import Decoder
from llamay.tok.tokenizer import Tokenizer, load
from llamay.tok.vocabulary import Vocabulary

__all__ = ["Decoder", "Tokenizer", "Vocabulary", "load"]

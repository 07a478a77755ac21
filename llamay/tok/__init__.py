"""Text to token ids and back, as streams too, and conversations to text."""

from llamay.tok.chat import ChatTemplate, Rendered, render
from llamay.tok.decoder import Decoder
from llamay.tok.tokenizer import Tokenizer, load
from llamay.tok.vocabulary import Vocabulary

__all__ = ["ChatTemplate", "Decoder", "Rendered", "Tokenizer", "Vocabulary", "load", "render"]

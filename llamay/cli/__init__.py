"""The command line: one module per command.

Importing `llamay.cli.list` puts a name `list` into this module, so no code lives here.
"""

from llamay.cli.frame import ALIASES, COMMANDS, load, main, overview, parser_of

__all__ = ["ALIASES", "COMMANDS", "load", "main", "overview", "parser_of"]

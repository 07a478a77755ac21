"""The terminal interface: a server, or an engine in this process, live on one screen.  Only this package imports Textual."""

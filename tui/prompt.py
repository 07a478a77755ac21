"""The Prompt: the field that questions are typed into."""

from textual import events
from textual.message import Message
from textual.widgets import TextArea


class Prompt(TextArea):
    """Enter sends, alt+enter begins a line, up in an empty field edits the last question, escape leaves."""

    class Sent(Message):
        """What was typed."""

        def __init__(self, text: str) -> None:
            self.text = text
            super().__init__()

    class Left(Message):
        """Escape."""

    class Recalled(Message):
        """Up in an empty field."""

    async def _on_key(self, event: events.Key) -> None:
        """Before the field itself has it."""
        if event.key == "enter":
            self._take(event)
            if self.text.strip():
                self.post_message(self.Sent(self.text.strip()))
        elif event.key in ("alt+enter", "shift+enter", "ctrl+j"):
            self._take(event)
            self.insert("\n")
        elif event.key == "escape":
            self._take(event)
            self.post_message(self.Left())
        elif event.key == "up" and not self.text:
            self._take(event)
            self.post_message(self.Recalled())
        else:
            await super()._on_key(event)

    def _take(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()

"""Remote: a running server, through its public routes and the statistics it streams."""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from llamay.client import Client, Line
from llamay.errors import LlamayError, NoServer
from llamay.tui.moment import Answered, Asked, Installed, Lost, Parting, Piece, Progress, Snapshot
from llamay.tui.source import AGAIN, TICK, Hear

THOUGHT = "response.reasoning_text.delta"
RESPONSE, CONTEXT = "resp_", "ctx_"  # the context of a response has the same digits


class Remote:
    """A server.  Its answers are kept there as contexts, so that they may be gone on with."""

    live = True

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lines: set[Line] = set()  # of streams under way
        self._closed = False
        self.where = client.base

    def watch(self, hear: Hear, stop: threading.Event) -> None:
        """Follows the statistics; where the server goes away it is tried again until it is back."""
        while not stop.is_set():
            try:
                with self._line(stop) as line:
                    for event in self._client.events(f"/v1/stats?stream=true&interval={TICK}", line=line):
                        hear(msgspec.convert(event.data, Snapshot))
                        if stop.is_set():
                            return
                reason = "the server ended the statistics"
            except (LlamayError, msgspec.ValidationError) as error:
                reason = str(error)
            if not stop.is_set():
                hear(Lost(reason, time.time()))
                stop.wait(AGAIN)

    def answer(self, asked: Asked, stop: threading.Event) -> Iterator[Piece | Answered]:
        """Through /v1/responses: every answer is a context of its own there."""
        body: dict[str, Any] = {"model": asked.model, "input": asked.text, "stream": True}
        if asked.most:
            body |= {"max_output_tokens": asked.most}
        if asked.before:
            body |= {"llamay_context": asked.before}
        if not asked.think:
            body |= {"reasoning": {"effort": "none"}}
        began, first, context, said = time.monotonic(), 0.0, "", 0
        try:
            with self._line(stop) as line, self._client.understood():
                for event in self._client.events("/v1/responses", body, line):
                    if event.name == "response.created":
                        context = context_of(event.data["response"]["id"])
                    elif event.name in ("response.output_text.delta", THOUGHT):
                        first = first or time.monotonic() - began
                        said += 1
                        yield Piece(asked.number, str(event.data["delta"]), event.name == THOUGHT)
                    elif event.name in ("response.completed", "response.incomplete", "response.failed"):
                        yield _over(asked.number, context, event.data["response"], first)
                        return
            yield Answered(asked.number, error="the answer broke off without its end")
        except NoServer as error:
            if not stop.is_set():
                raise
            yield Answered(asked.number, context if said else "", reason="cancel", first=first, error="" if said else str(error))

    def fork(self, context: str, count: int = 1) -> tuple[str, ...]:
        """POST /v1/contexts/{id}/fork."""
        with self._client.understood():
            made = self._client.post(f"/v1/contexts/{quote(context)}/fork?{urlencode({'n': count})}", {})
            return tuple([str(one["id"]) for one in made["data"]])

    def rewind(self, context: str, to: int) -> None:
        """POST /v1/contexts/{id}/rewind."""
        self._client.post(f"/v1/contexts/{quote(context)}/rewind", {"to": to})

    def save(self, context: str, name: str) -> str:
        """POST /v1/contexts/{id}/snapshot."""
        with self._client.understood():
            return str(self._client.post(f"/v1/contexts/{quote(context)}/snapshot", {"name": name} if name else {})["name"])

    def drop(self, context: str) -> None:
        """DELETE /v1/contexts/{id}."""
        self._client.delete(f"/v1/contexts/{quote(context)}")

    def diff(self, left: str, right: str) -> Parting:
        """GET /v1/contexts/{id}/diff/{other}."""
        with self._client.understood():
            found = self._client.get(f"/v1/contexts/{quote(left)}/diff/{quote(right)}")
            values = {
                "common": found["common_tokens"], "tokens": found["tokens"], "texts": found["texts"],
                "shared": found["shared_pages"], "pages": found["pages"],
            }  # fmt: skip
            return msgspec.convert(values, Parting)

    def cancel(self, request: int) -> None:
        """POST /v1/requests/{id}/cancel."""
        self._client.post(f"/v1/requests/{request}/cancel", {})

    def installed(self) -> tuple[Installed, ...]:
        """GET /api/tags."""
        with self._client.understood():
            return tuple([_installed(one) for one in self._client.get("/api/tags")["models"]])

    def load(self, model: str) -> None:
        """A generation without a prompt only loads."""
        self._client.post("/api/generate", {"model": model, "stream": False})

    def unload(self, model: str) -> None:
        """As `llamay stop` does."""
        self._client.post("/api/generate", {"model": model, "keep_alive": 0, "stream": False})

    def delete(self, model: str) -> None:
        """DELETE /api/delete."""
        self._client.delete("/api/delete", {"model": model})

    def pull(self, name: str) -> Iterator[Progress]:
        """POST /api/pull."""
        with self._client.understood():
            for said in self._client.values("/api/pull", {"model": name}):
                if "error" in said:
                    raise LlamayError(str(said["error"]))
                yield Progress(str(said.get("status", "")), int(said.get("total", 0)), int(said.get("completed", 0)))

    def spelled(self, model: str) -> str:
        """As the server does."""
        return model

    def close(self) -> None:
        """Ends the streams that are under way."""
        self._closed = True
        for line in list(self._lines):
            line.cut()

    @contextlib.contextmanager
    def _line(self, stop: threading.Event) -> Iterator[Line]:
        """A connection that `close`, or soon after it was set `stop`, ends."""
        line, over = Line(), threading.Event()
        self._lines.add(line)

        def look() -> None:
            while not over.is_set() and not stop.wait(TICK):
                pass
            if not over.is_set():
                line.cut()

        threading.Thread(target=look, name="llamay-stop", daemon=True).start()
        try:
            yield line
        finally:
            over.set()
            self._lines.discard(line)


def context_of(response: str) -> str:
    """The id of the context that a response is kept as."""
    return CONTEXT + response.removeprefix(RESPONSE)


def _over(number: int, context: str, response: dict[str, Any], first: float) -> Answered:
    if response["status"] == "failed":
        return Answered(number, error=str(response["error"]["message"]))
    usage = response["usage"]
    return Answered(
        number, context, int(usage["input_tokens"]), int(usage["llamay_cached_prompt_tokens"]), int(usage["output_tokens"]),
        first or usage["llamay_prefill_ms"] / 1e3, usage["llamay_decode_ms"] / 1e3,
        "length" if response["status"] == "incomplete" else "end",
    )  # fmt: skip


def _installed(found: dict[str, Any]) -> Installed:
    details = found.get("details", {})
    return Installed(
        str(found["name"]), int(found["size"]),
        *[str(details.get(key) or "") for key in ("quantization_level", "family", "parameter_size")],
    )  # fmt: skip

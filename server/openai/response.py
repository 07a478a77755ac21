"""A Response: what /v1/responses tells of one answer, whole and as the events that lead up to it."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from llamay.errors import LlamayError
from llamay.serve.events import Done, Ended, Timings
from llamay.serve.speech import Spoken, spoken
from llamay.server import failures, replies, sse
from llamay.server.openai import items, logprobs, wire
from llamay.server.turn import Turn
from llamay.tok import Tokenizer
from llamay.tok.thinking import Thinking

Told = Callable[[dict[str, Any], str], None]  # the finished response and its text

INCOMPLETE = ("length", "context", "cancel")


class Response:
    """One response on its way."""

    def __init__(self, body: wire.Response, model: str, tokenizer: Tokenizer, thinking: Thinking | None, finished: Told) -> None:
        """`thinking` tells thoughts from the answer; `finished` hears of the end, unless it failed."""
        self._body, self._model, self._tokenizer, self._thinking, self._finished = body, model, tokenizer, thinking, finished
        self.id = replies.made("resp_")
        self._created = int(time.time())
        self._output: list[items.Output] = []
        self._reason = "end"
        self._thought = 0  # tokens
        self._timings: Timings | None = None
        self._number = 0

    def whole(self, turn: Turn) -> dict[str, Any]:
        """The reply in one piece."""
        for _ in self._heard(turn):
            pass
        return self._end()

    def events(self, turn: Turn) -> Iterator[bytes]:
        """The reply as named server-sent events; whatever happens, the stream has its end."""
        shown: items.Output | None = None
        try:
            yield self._event("response.created", response=self._object("in_progress"))
            yield self._event("response.in_progress", response=self._object("in_progress"))
            if self._thinking is None:
                shown = self._open(thought=False)
                yield from self._began(shown)
            for piece in self._heard(turn):
                if piece is None:
                    yield sse.PING
                    continue
                output, text, told = piece
                if output is not shown:
                    yield from () if shown is None else self._over(shown, "completed")
                    yield from self._began(output)
                    shown = output
                more = {} if output.thought else {"logprobs": told}
                yield self._event(f"response.{output.kind}.delta", **self._place(output), delta=text, **more)
            if shown is None:
                shown = self._open(thought=False)
                yield from self._began(shown)
            done = self._end()
            yield from self._over(shown, done["status"])
            yield self._event(f"response.{done['status']}", response=done)
        except LlamayError as error:
            told = failures.of(error, "openai").body["error"]
            failed = {"code": told["code"] or "server_error", "message": told["message"]}
            yield self._event("response.failed", response=self._object("failed", error=failed))

    def _open(self, *, thought: bool) -> items.Output:
        output = items.Output(thought, len(self._output))
        self._output.append(output)
        return output

    def _began(self, output: items.Output) -> Iterator[bytes]:
        """The events that an item begins with."""
        yield self._event("response.output_item.added", output_index=output.index, item=output.item("in_progress"))
        yield self._event("response.content_part.added", **self._place(output), part=items.Output(output.thought, output.index).part())

    def _over(self, output: items.Output, status: str) -> Iterator[bytes]:
        """The events that an item ends with."""
        more = {} if output.thought else {"logprobs": output.logprobs}
        yield self._event(f"response.{output.kind}.done", **self._place(output), text=output.text, **more)
        yield self._event("response.content_part.done", **self._place(output), part=output.part())
        yield self._event("response.output_item.done", output_index=output.index, item=output.item(status))

    def _place(self, output: items.Output) -> dict[str, Any]:
        return {"item_id": output.id, "output_index": output.index, "content_index": 0}

    def _heard(self, turn: Turn) -> Iterator[tuple[items.Output, str, list[dict[str, Any]]] | None]:
        """Pieces of text with the item they are of and what is told of their tokens; None for silence."""
        for event in spoken(turn, self._thinking):
            match event:
                case None:
                    yield None
                case Spoken(text, scored=scored, thought=thought):
                    same = bool(self._output) and self._output[-1].thought == thought
                    output = self._output[-1] if same else self._open(thought=thought)
                    told = logprobs.content(self._tokenizer, scored)
                    output.text += text
                    output.logprobs += told
                    yield output, text, told
                case Ended(reason=reason, tokens=tokens):
                    self._reason = reason
                    self._thought = 0 if self._thinking is None else self._thinking.count(tokens, self._tokenizer.ids)
                case Done(timings=timings):
                    self._timings = timings

    def _end(self) -> dict[str, Any]:
        incomplete = self._reason in INCOMPLETE
        status = "incomplete" if incomplete else "completed"
        if not self._output:
            self._open(thought=False)
        found = self._object(
            status,
            completed_at=None if incomplete else int(time.time()),
            incomplete_details={"reason": "max_output_tokens"} if incomplete else None,
            output=[one.item(status if one is self._output[-1] else "completed") for one in self._output],
            usage=None if self._timings is None else usage(self._timings, self._thought),
        )
        self._finished(found, "".join([one.text for one in self._output if not one.thought]))
        return found

    def _event(self, type: str, **fields: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return sse.event({"type": type, "sequence_number": number, **fields}, type)

    def _object(self, status: str, **fields: Any) -> dict[str, Any]:
        """The response as it is just now."""
        body = self._body
        found: dict[str, Any] = {
            "id": self.id,
            "object": "response",
            "created_at": self._created,
            "completed_at": None,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "model": self._model,
            "output": [],
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": body.previous_response_id,
            "reasoning": body.reasoning or {"effort": None, "summary": None},
            "store": body.store is not False,
            "temperature": body.temperature,
            "text": body.text or {"format": {"type": "text"}},
            "tool_choice": "auto" if body.tool_choice is None else body.tool_choice,
            "tools": [],
            "top_logprobs": body.top_logprobs or 0,
            "top_p": body.top_p,
            "truncation": "disabled",  # nothing is ever cut away silently
            "usage": None,
            "user": body.user,
            "metadata": body.metadata or {},
        }
        return {**found, **fields}


def usage(timings: Timings, thought: int = 0) -> dict[str, Any]:
    """The usage object; `thought` of the tokens are no text, times are in milliseconds."""
    return {
        "input_tokens": timings.prompt_tokens,
        "input_tokens_details": {"cached_tokens": timings.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": timings.generated_tokens,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": timings.prompt_tokens + timings.generated_tokens,
        "llamay_prefill_ms": round(timings.prompt_seconds * 1e3, 3),
        "llamay_decode_ms": round(timings.decode_seconds * 1e3, 3),
        "llamay_cached_prompt_tokens": timings.cached_tokens,
    }

"""Chat templates: a conversation to the text a model was trained on, and which characters of it the user wrote."""

import datetime
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from llamay.errors import TemplateError
from llamay.tok import messages as shape
from llamay.tok import thinking
from llamay.tok.budget import ACCOUNT, Budget, Limits
from llamay.tok.marked import Marked, Spans, concat

if TYPE_CHECKING:
    from llamay.tok.sandbox import Sandbox

NEEDLE = "Qx7needle"  # what trial renderings look for in their output
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}, "required": []}},
}
PROBE: dict[str, Any] = {"add_generation_prompt": True, "%now": datetime.datetime(2024, 1, 1)}


@dataclass(frozen=True, slots=True)
class Rendered:
    """The prompt as text, the spans of it (start, end in characters) that are input, and what was adapted and why."""

    text: str
    spans: Spans
    notes: tuple[str, ...] = ()


@cache
def _sandbox() -> "Sandbox":
    from llamay.tok.sandbox import Sandbox  # jinja2 costs 40 ms, which most commands need not pay

    return Sandbox()


class ChatTemplate:
    """One Jinja template in the sandbox, with what it can take found out by trying.

    name is "file" or that of a fallback; stops are the strings that end a turn where no token does; digest identifies
    the source. `tokens` are the texts of special tokens, like bos_token. TemplateError when the source does not compile
    is raised at the first use.
    """

    def __init__(
        self,
        source: str,
        tokens: Mapping[str, str] | None = None,
        *,
        name: str = "file",
        stops: tuple[str, ...] = (),
        limits: Limits | None = None,
    ) -> None:
        self.source, self.name, self.stops = source, name, stops
        self.digest = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
        self._tokens, self._limits = dict(tokens or {}), limits or Limits()

    def render(
        self,
        messages: Iterable[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        now: datetime.datetime | None = None,
        **variables: Any,
    ) -> Rendered:
        """The prompt of a conversation.

        `now` is what the template takes for the present; by default today at midnight, so that a day's prompts are
        equal. Other `variables` reach the template as they are. TemplateError with the template's own words when it
        refuses; UsageError for what is no conversation.
        """
        _ = self._compiled  # when it does not compile, nothing needs trying
        conversation = shape.checked(messages, self.typed)
        variables = {**variables, "tools": shape.copied(tools, "tools") if tools else None}
        variables |= {"add_generation_prompt": add_generation_prompt, "%now": now or _today()}
        if tools and not self.takes_tools:
            raise TemplateError("this model's chat template takes no tools: what you gave would be lost")
        conversation, notes = self._fitted(conversation)
        text, repairs = self._repaired(conversation, variables)
        notes += [*repairs, *_missing(conversation, text)]
        return Rendered(str.__str__(text)[:], text.spans, tuple(notes))

    def _fitted(self, conversation: list[shape.Message]) -> tuple[list[shape.Message], list[str]]:
        """The conversation in a shape that the template takes without dropping words."""
        notes: list[str] = []

        def change(made: list[shape.Message], note: str) -> list[shape.Message]:
            if made != conversation:
                notes.append(note)
            return made

        conversation = change(shape.with_one_system(conversation), "leading system messages became one")
        if conversation[0]["role"] == "system" and not self.takes_system:
            conversation = change(shape.without_system(conversation), "the system text went into the first user message")
        if any(message["role"] == "system" for message in conversation[1:]) and not self.takes_late_system:
            conversation = change(shape.late_system_as_user(conversation), "later system messages became user messages")
        if any(message.get("tool_calls") for message in conversation):
            if self.wants_text_arguments:
                conversation = change(shape.arguments_as_text(conversation), "tool arguments became text")
            if self.wants_short_ids:
                conversation = change(shape.short_ids(conversation), "tool call ids became nine characters")
        return conversation, notes

    def _repaired(self, conversation: list[shape.Message], variables: dict[str, Any]) -> tuple[Marked, list[str]]:
        """The rendered text; when the template refuses, that of a changed conversation, and what was changed."""
        try:
            return self._run(conversation, variables), []
        except TemplateError as error:
            refusal = error
        notes: list[str] = []
        for note, repair in REPAIRS:
            changed = repair(conversation)
            if changed == conversation:
                continue
            conversation, notes = changed, [*notes, note]
            try:
                return self._run(conversation, variables), notes
            except TemplateError:
                continue
        raise refusal

    def _run(self, conversation: Sequence[shape.Message], variables: Mapping[str, Any]) -> Marked:
        """One rendering on an account of its own."""
        compiled = self._compiled
        given = {name: _input(value) for name, value in {"messages": conversation, **variables}.items()}
        account = Budget(self._limits, *_size(given))
        outer = ACCOUNT.set(account)
        try:
            pieces = compiled.root_render_func(compiled.new_context({**self._tokens, **given}))
            text = _collected(pieces, account.output)
        except Exception as error:
            raise _refusal(error) from error
        finally:
            ACCOUNT.reset(outer)
        return text

    @cached_property
    def _compiled(self) -> Any:
        from llamay.tok.sandbox import SOURCE

        if len(self.source) > SOURCE:
            raise TemplateError(f"the chat template has {len(self.source)} characters; at most {SOURCE} are taken")
        try:
            return _sandbox().from_string(self.source)
        except Exception as error:
            raise _refusal(error) from error

    def _shows(self, *conversation: Any, **variables: Any) -> bool:
        """Whether the needle that the conversation holds comes out of the template."""
        try:
            return NEEDLE in self._run(conversation, PROBE | {"tools": self._usual_tools} | variables)
        except TemplateError:
            return False

    @cached_property
    def _usual_tools(self) -> Any:
        """What `tools` is while trying: None, or a list for a template that works with tools only."""
        for tools in (None, [TOOL]):
            try:
                self._run([_user("a")], PROBE | {"tools": tools})
                return tools
            except TemplateError:
                continue
        return None

    @cached_property
    def typed(self) -> bool:
        """Whether content must be a list of typed parts, because text is lost."""
        parts = [{"type": "text", "text": NEEDLE}]
        return not self._shows(_user(NEEDLE)) and self._shows({"role": "user", "content": parts})

    @cached_property
    def thinks(self) -> tuple[str, str] | None:
        """The marks around what a model thinks before it speaks, None where it does not."""
        return thinking.marks(self.source)

    def _content(self, text: str) -> Any:
        return [{"type": "text", "text": text}] if self.typed else text

    def _said(self, role: str, text: str, **more: Any) -> shape.Message:
        return {"role": role, "content": self._content(text), **more}

    @cached_property
    def takes_system(self) -> bool:
        """Whether a system message at the start comes out."""
        return self._shows(self._said("system", NEEDLE), self._said("user", "a"))

    @cached_property
    def takes_late_system(self) -> bool:
        """Whether a system message in the middle comes out."""
        start = [self._said("user", "a"), self._said("assistant", "b")]
        return self._shows(*start, self._said("system", NEEDLE), self._said("user", "c"))

    @cached_property
    def takes_tools(self) -> bool:
        """Whether the tools that a conversation may use come out."""
        return self._shows(self._said("user", "a"), tools=[TOOL | {"function": TOOL["function"] | {"name": NEEDLE}}])

    def _with_call(self, arguments: Any, id: str = "abcdefghi") -> list[shape.Message]:
        call = {"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}}
        answer = self._said("tool", "c", tool_call_id=id, name="f")
        return [self._said("user", "a"), self._said("assistant", "", tool_calls=[call]), answer]

    @cached_property
    def wants_text_arguments(self) -> bool:
        """Whether the arguments of tool calls are lost as objects and come out as JSON text."""
        return not self._shows(*self._with_call({"x": NEEDLE})) and self._shows(*self._with_call(f'{{"x": "{NEEDLE}"}}'))

    @cached_property
    def wants_short_ids(self) -> bool:
        """Whether the template refuses ids of tool calls that are not nine letters and digits."""
        arguments: Any = f'{{"x": "{NEEDLE}"}}' if self.wants_text_arguments else {"x": NEEDLE}
        return self._shows(*self._with_call(arguments)) and not self._shows(*self._with_call(arguments, "call_0123456789"))


REPAIRS: tuple[tuple[str, Callable[[Sequence[shape.Message]], list[shape.Message]]], ...] = (
    ("messages of one role in a row became one, because the template refused them", shape.neighbours_merged),
    ("thinking beside content and tool calls was left out, because the template refused it", shape.thinking_dropped),
)


def _collected(pieces: Iterable[str], most: int) -> Marked:
    """The whole of a template's pieces, which may have so many characters."""
    found, size = [], 0
    for piece in pieces:
        size += len(piece)
        if size > most:
            raise TemplateError(f"the chat template wrote more than {most} characters")
        found.append(piece)
    return concat(found)


def _user(text: str) -> shape.Message:
    return {"role": "user", "content": text}


def _today() -> datetime.datetime:
    return datetime.datetime.combine(datetime.date.today(), datetime.time())


def _input(value: Any) -> Any:
    """A copy whose texts are marked as input, in lists that a template cannot change."""
    from llamay.tok.sandbox import InputList

    if isinstance(value, str):
        return Marked(value)
    if isinstance(value, Mapping):
        return {Marked(key): _input(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return InputList(map(_input, value))
    return value


def _size(value: Any) -> tuple[int, int]:
    """Values and characters in a copied input."""
    if isinstance(value, str):
        return 1, len(value)
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list):
        parts = [_size(item) for item in value]
        return 1 + sum(part[0] for part in parts), sum(part[1] for part in parts)
    return 1, 0


def _refusal(error: Exception) -> TemplateError:
    """What went wrong inside a template, in its own words where it has some."""
    from jinja2.exceptions import TemplateError as JinjaError
    from jinja2.exceptions import TemplateSyntaxError

    if isinstance(error, TemplateError):
        return error
    words = str(error)[:2000] or type(error).__name__
    if isinstance(error, TemplateSyntaxError):
        return TemplateError(f"the chat template does not compile: line {error.lineno}: {words}")
    if isinstance(error, JinjaError):
        return TemplateError(f"the chat template refused the conversation: {words}")
    return TemplateError(f"the chat template failed: {type(error).__name__}: {words}")


def _missing(conversation: Sequence[shape.Message], text: str) -> list[str]:
    """Notes on what users, systems, tools and tool calls say that does not come out of the template as it went in."""
    found = []
    for at, message in enumerate(conversation):
        where, content = f"message {at} ({message['role'][:20]})", message["content"]
        parts = content if isinstance(content, list) else [{"text": content}]
        said = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
        if message["role"] != "assistant" and any(words.strip() not in text for words in said):
            found.append(f"{where} does not come out of the template as it was given")
        for call in message.get("tool_calls") or ():
            if str(call["function"].get("name")) not in text:
                found.append(f"a tool call of {where} does not come out of the template")
    return found


@cache
def _cached(source: str, tokens: tuple[tuple[str, str], ...]) -> ChatTemplate:
    return ChatTemplate(source, dict(tokens))


def render(template: str, messages: Iterable[Mapping[str, Any]], **options: Any) -> str:
    """The text a template makes of a conversation: see `ChatTemplate.render`; `*_token` options are special tokens."""
    tokens = tuple(sorted((name, options.pop(name)) for name in list(options) if name.endswith("_token")))
    return _cached(template, tokens).render(messages, **options).text

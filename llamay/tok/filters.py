"""The filters and tests a chat template may use: those of Jinja, each charged for its work, texts keeping their marks."""

import html
import json
import operator
import re
from collections.abc import Callable, Iterator, Sized
from functools import partial
from typing import Any, cast

from jinja2 import pass_context
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS
from jinja2.runtime import Context
from jinja2.tests import TESTS

from llamay.tok.budget import ACCOUNT, ELEMENT
from llamay.tok.marked import Marked, doubtful, pay, shown, spans_of

Function = Callable[..., Any]

AS_THEY_ARE = (
    "abs batch count d default dictsort first float groupby int items last length list map max min reject rejectattr "
    "reverse round select selectattr slice sort unique"
).split()
COMPARING = ("dictsort", "groupby", "max", "min", "sort", "unique")
TEST_NAMES = (
    "boolean callable defined divisibleby even false filter float in integer iterable mapping none number odd "
    "sameas sequence string test true undefined"
).split()
LARGEST = 100_000  # numbers given to a filter: widths, counts, precisions
LONGEST_NUMBER = 330  # characters of a float without a width
ESCAPED = 10  # characters that one may become where it is escaped
ESCAPING = re.compile(r"%[-#0 +.\d]*[ra]|![ra]")
WIDTHS = re.compile(r"\d{5,}|\*")


def marked(value: Any) -> Marked:
    """A value as text whose methods keep the marks."""
    text = shown(value)
    return text if isinstance(text, Marked) else Marked(text, ())


def ticking(values: Any) -> Iterator[Any]:
    """The same values, each paid for when it is taken."""
    step = ACCOUNT.get().step
    for value in values:
        step()
        yield value


def safe_format(text: str) -> None:
    """Refuse a format that asks for huge widths, or takes them from its arguments."""
    if WIDTHS.search(text) or re.search(r"{[^{}]*{", text):
        raise SecurityError("a chat template may not format with widths of more than four digits or computed ones")


def formatted(text: str, sign: str, values: Any, make: Callable[[], str]) -> Marked:
    """What `make` makes of a format in which `sign` marks the places of values; input if any of it may be."""
    safe_format(text)
    ACCOUNT.get().weigh(values)
    longest = max((len(shown(value)) for value in (values.values() if isinstance(values, dict) else values)), default=0)
    widths = sum(map(int, re.findall("[0-9]+", text)))  # widths and precisions are among them
    growth = ESCAPED if ESCAPING.search(text) else 1
    pay(len(text) + widths + text.count(sign) * (growth * longest + LONGEST_NUMBER))
    return marked(text).like(make(), values if has_marks(values) else None)


def percent(text: str, values: Any) -> Marked:
    """`text % values`."""
    values = values if isinstance(values, (dict, tuple)) else (values,)
    return formatted(text, "%", values, lambda: str.__mod__(text, values))


def indent(value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> Marked:
    prefix = width if isinstance(width, str) else " " * width
    lines = marked(value).split("\n")
    pay(len(prefix) * len(lines))
    out = [prefix + line if (at and (line or blank)) or (first and not at) else line for at, line in enumerate(lines)]
    return Marked("\n", ()).join(out)


def join(value: Any, d: Any = "", attribute: Any = None) -> Marked:
    parts = list(ticking(value))
    if attribute is not None:
        parts = [part[attribute] if isinstance(part, (dict, list, tuple)) else "" for part in parts]
    return marked(d).join(parts)


def tojson(
    value: Any, ensure_ascii: bool = False, indent: int | str | None = None, separators: Any = None, sort_keys: bool = False
) -> Marked:
    """JSON as `json.dumps` writes it, not as HTML; all of it is input unless nothing in it is."""
    for given in (indent, *(separators or ())):
        if given is not None and (given if isinstance(given, int) else len(given)) > 32:
            raise SecurityError("tojson was given an indent or a separator of more than 32 characters")
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    return Marked(text, None if has_marks(value) else ())


def has_marks(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(has_marks, value.keys())) or any(map(has_marks, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(has_marks, value))
    return bool(spans_of(value)) if isinstance(value, str) else False


def from_json(value: Any) -> Any:
    """A JSON text as a value; what comes from input stays input."""
    text = marked(value)
    pay(8 * len(text))
    found = json.loads(text)
    return remarked(found) if text.spans else found


def remarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {Marked(key): remarked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [remarked(item) for item in value]
    return Marked(value) if isinstance(value, str) else value


def total(value: Any, attribute: Any = None, start: int | float = 0) -> int | float:
    """A sum of numbers; of lists, which Python would copy again and again, there is none."""
    for part in ticking(value):
        number = part if attribute is None else part[attribute]
        if not isinstance(number, (int, float)):
            raise SecurityError(f"sum takes numbers; a {type(number).__name__} was given")
        start += number
    return start


def truncate(value: Any, length: int = 255, killwords: bool = False, end: str = "...", leeway: int = 5) -> Marked:
    text = marked(value)
    if len(text) <= length + leeway:
        return text
    kept = text[: max(0, length - len(end))]
    return (kept if killwords else kept.rsplit(" ", 1)[0] if " " in kept else kept) + end  # type: ignore[return-value]


OWN: dict[str, Function] = {
    "capitalize": lambda value: marked(value).capitalize(),
    "center": lambda value, width=80: marked(value).center(width),
    "e": lambda value: marked(value).like(html.escape(marked(value))),
    "escape": lambda value: marked(value).like(html.escape(marked(value))),
    "format": lambda value, *args, **kwargs: percent(marked(value), kwargs or args),
    "from_json": from_json,
    "fromjson": from_json,
    "indent": indent,
    "join": join,
    "lower": lambda value: marked(value).lower(),
    "replace": lambda value, old, new, count=None: marked(value).replace(
        shown(old), shown(new), -1 if count is None else count
    ),
    "safe": lambda value: marked(value),
    "sum": total,
    "string": lambda value: marked(value),
    "title": lambda value: marked(value).title(),
    "tojson": tojson,
    "trim": lambda value, chars=None: marked(value).strip(chars),
    "truncate": truncate,
    "upper": lambda value: marked(value).upper(),
    "wordcount": lambda value: len(marked(value).split()),
}
IN_PASSING = ("abs", "count", "d", "default", "first", "float", "int", "items", "last", "length")
WALKING = ("join", "string", "safe", "tojson", *COMPARING)


def guarded(name: str, function: Function) -> Function:
    """A filter or test that pays for itself, and whose text counts as input where it may hold some.

    It takes the context, so the compiler cannot run it on constants before the account is open.
    """
    needs = getattr(getattr(function, "jinja_pass_arg", None), "name", "")

    @pass_context
    def run(context: Context, *args: Any, **kwargs: Any) -> Any:
        account = ACCOUNT.get()
        account.step()
        given = (*args, *kwargs.values())
        for value in given[1:]:
            if isinstance(value, int) and abs(value) > LARGEST:
                raise SecurityError(f"{name!r} was given a number above {LARGEST}")
        if name in WALKING:
            account.weigh(given, printed=name == "tojson")
        for value in given:
            if isinstance(value, str):
                account.read(value)
        by_element = name in AS_THEY_ARE or name == "join"  # the others read a text, which is paid for above
        if name not in IN_PASSING and isinstance(given[0], Sized) and (by_element or not isinstance(given[0], str)):
            account.step(len(given[0]))
            pay(ELEMENT * len(given[0]) if isinstance(given[0], str) else 0)
        first: Any = {"context": context, "eval_context": context.eval_ctx, "environment": context.environment}
        made = function(*((first[needs],) if needs else ()), *args, **kwargs)
        if isinstance(made, str):
            pay(len(made))
            return made if isinstance(made, Marked) or name in AS_THEY_ARE or not any(map(doubtful, given)) else Marked(made)
        if isinstance(made, (list, tuple)):
            pay(ELEMENT * len(made))
        return ticking(made) if isinstance(made, Iterator) else made

    return run


def compared(left: Any, *rest: Any) -> bool:
    """`left op right op right ...`, each comparison paid for by what it may walk through."""
    account = ACCOUNT.get()
    for op, right in zip(rest[::2], rest[1::2], strict=True):
        if op in ("in", "notin"):
            if isinstance(right, range):
                account.step(len(right) >> 3)
            elif not isinstance(right, dict):
                account.weigh(right)
        elif isinstance(left, str) and isinstance(right, str):
            account.read(min(left, right, key=len))
        else:
            account.weigh((left, right))
        if not OPERATORS[op](left, right):
            return False
        left = right
    return True


def _compare(op: str, left: Any, right: Any) -> bool:
    return compared(left, op, right)


OPERATORS: dict[str, Function] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
    "in": lambda left, right: left in right,
    "notin": lambda left, right: left not in right,
}
COMPARISONS = {"eq": "eq == equalto", "ne": "ne !=", "lt": "lt < lessthan", "lteq": "le <=", "gt": "gt > greaterthan"}


def filters() -> dict[str, Function]:
    """All filters by name."""
    found = {name: guarded(name, cast(Function, FILTERS[name])) for name in AS_THEY_ARE}
    return found | {name: guarded(name, function) for name, function in OWN.items()}


def tests() -> dict[str, Function]:
    """All tests by name."""
    found = {name: guarded(name, cast(Function, TESTS[name])) for name in TEST_NAMES}
    found["lower"] = guarded("lower", lambda value: marked(value).islower())
    found["upper"] = guarded("upper", lambda value: marked(value).isupper())
    for op, names in (COMPARISONS | {"gteq": "ge >=", "in": "in"}).items():
        for name in names.split():
            found[name] = guarded(name, partial(_compare, op))
    return found

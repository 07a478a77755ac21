"""The Jinja environment that chat templates run in: they come from model files, so they are hostile until proven dull.

A template may use the nodes, filters, tests, globals and attributes that are listed, and nothing else. Whatever loops,
calls or makes text is charged to an account (`budget`), also what Jinja compiles to plain Python: loops, comparisons,
slices and `~` are rewritten into charged calls before compilation, and nothing is evaluated at compile time.
"""

import datetime
from collections.abc import Callable, Iterable
from typing import Any, cast

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateSyntaxError
from jinja2.exceptions import TemplateError as JinjaError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter, safe_range
from jinja2.utils import Namespace, pass_context
from jinja2.visitor import NodeTransformer

from llamay.tok.budget import ACCOUNT, ELEMENT
from llamay.tok.filters import compared, filters, formatted, marked, percent, safe_format, tests, ticking
from llamay.tok.marked import concat, pay, shown

SOURCE = 1 << 17  # characters a template may have
MOST_NODES = 50_000  # in its syntax tree
WIDEST = 1 << 12  # bits of the integers a template may make

NODES = frozenset(
    "Template Output TemplateData For If Macro CallBlock FilterBlock With Assign AssignBlock Break Continue Name NSRef "
    "Const Tuple List Dict Pair Keyword CondExpr Filter Test Call Getitem Getattr Slice Concat Compare Operand And Or Not "
    "Neg Pos Add Sub Mul Div FloorDiv Mod Pow".split()
)
TEXT = frozenset(
    "capitalize casefold center count endswith find format index isalnum isalpha isascii isdecimal isdigit isidentifier "
    "islower isnumeric isspace istitle isupper join ljust lower lstrip partition removeprefix removesuffix replace rfind "
    "rindex rjust rpartition rsplit rstrip split splitlines startswith strip swapcase title upper zfill".split()
)
LIST = frozenset("append clear copy count extend index insert pop remove reverse".split())
ATTRIBUTES: tuple[tuple[type, frozenset[str]], ...] = (
    (str, TEXT),
    (dict, frozenset(("get", "items", "keys", "values"))),
    (tuple, frozenset(("count", "index", "grouper", "list"))),  # groupby makes tuples with names
    (
        LoopContext,
        frozenset("index index0 revindex revindex0 first last length cycle depth depth0 previtem nextitem".split()),
    ),
)
COSTLY = frozenset(("count", "index", "remove"))  # methods of a list that compare elements


class InputList(list[Any]):
    """A list that came from the caller: a template may change lists of its own only."""


class Generation(Extension):
    """`{% generation %}`, which marks the assistant's words for training: here it only passes them through."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Rewriter(NodeTransformer):
    """Refuses nodes that are not listed, and turns work that Jinja does inline into charged calls."""

    def __init__(self) -> None:
        self.count = 0

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        if self.count > MOST_NODES:
            raise TemplateSyntaxError(f"a chat template may not have more than {MOST_NODES} parts", node.lineno)
        if type(node).__name__ not in NODES:
            raise TemplateSyntaxError(f"a chat template may not use {type(node).__name__!r}", node.lineno)
        if getattr(node, "dyn_args", None) is not None or getattr(node, "dyn_kwargs", None) is not None:
            raise TemplateSyntaxError("a chat template may not use *args and **kwargs in a call", node.lineno)
        return super().visit(node, *args, **kwargs)

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = _call("%ticking", node.iter)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        first, *rest = node.nodes
        return _call("%concat", first, *rest)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        operands = [part for operand in node.ops for part in (nodes.Const(operand.op), operand.expr)]
        return _call("%compared", node.expr, *operands)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        parts = (node.arg.start, node.arg.stop, node.arg.step)
        return _call("%cut", node.node, *(nodes.Const(None) if part is None else part for part in parts))


def _call(name: str, value: nodes.Node, *args: nodes.Expr) -> nodes.Filter:
    """A filter under a name that no template can spell."""
    return nodes.Filter(cast(nodes.Expr, value), name, list(args), [], None, None, lineno=value.lineno)


def _charged(function: Callable[..., Any]) -> Callable[..., Any]:
    @pass_context
    def run(context: Context, *args: Any) -> Any:
        ACCOUNT.get().step()
        return function(*args)

    return run


def _cut(value: Any, start: Any, stop: Any, step: Any) -> Any:
    if isinstance(value, str):
        value = marked(value)
        pay(len(value))
    elif isinstance(value, (list, tuple)):
        pay(ELEMENT * len(value))
        value = list(value) if isinstance(value, InputList) else value
    return value[start:stop:step]


INLINE: dict[str, Callable[..., Any]] = {
    "%ticking": ticking,
    "%concat": lambda *parts: concat(map(shown, parts)),
    "%compared": compared,
    "%cut": _cut,
}


@pass_context
def _finalize(context: Context, value: Any) -> str:
    ACCOUNT.get().step()
    return shown(value)


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment; one instance serves all templates."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            finalize=_finalize,
            extensions=[loopcontrols, Generation],
            cache_size=0,
        )
        self.filters.clear()
        self.filters.update(filters() | {name: _charged(function) for name, function in INLINE.items()})
        self.tests.clear()
        self.tests.update(tests())
        self.globals = {
            "range": safe_range,
            "dict": dict,
            "namespace": Namespace,
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = Rewriter().visit(super()._parse(source, name, filename))
        return tree

    def concat(self, pieces: Iterable[str]) -> str:
        """Used by compiled code for macros and set blocks."""
        return concat(pieces)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if attr.startswith("_"):
            return False
        if isinstance(obj, Namespace):
            return True
        if type(obj) is list:
            return attr in LIST
        if isinstance(obj, InputList):
            return attr in ("copy", "count", "index")
        return any(isinstance(obj, kind) and attr in names for kind, names in ATTRIBUTES)

    def getattr(self, obj: Any, attribute: str) -> Any:
        ACCOUNT.get().step()
        return super().getattr(marked(obj) if isinstance(obj, str) else obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        ACCOUNT.get().weigh(argument)  # what is not found is named in the error
        return super().getitem(marked(obj) if isinstance(obj, str) else obj, argument)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        text = getattr(value, "__self__", None)
        if not isinstance(text, str) or getattr(value, "__name__", "") not in ("format", "format_map"):
            return None

        def run(*args: Any, **kwargs: Any) -> str:
            values = {**{str(at): value for at, value in enumerate(args)}, **kwargs}
            return formatted(text, "{", values, lambda: SandboxedFormatter(self).vformat(text, args, kwargs))

        return run

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        account = ACCOUNT.get()
        account.step()
        owner = getattr(__obj, "__self__", None)
        for text in (owner, *args):
            if isinstance(text, str):
                account.read(text)
                pay(ELEMENT * len(text) if isinstance(owner, list) else 0)
        if isinstance(owner, (list, tuple)) and getattr(__obj, "__name__", "") in COSTLY:
            account.weigh(owner)
            account.weigh(args)
        if isinstance(__obj, LoopContext):
            args = tuple(ticking(arg) for arg in args)
        before = len(owner) if isinstance(owner, list) else 0
        made = super().call(__context, __obj, *args, **kwargs)
        if isinstance(owner, list):
            pay(ELEMENT * max(0, len(owner) - before))
        if isinstance(made, str):
            pay(len(made))
        if isinstance(made, (list, dict)):
            pay(ELEMENT * len(made))
        return made

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        ACCOUNT.get().step()
        left, right = (marked(side) if isinstance(side, str) else side for side in (left, right))
        if operator == "%" and isinstance(left, str):
            return percent(left, right)
        for side, other in ((left, right), (right, left)):
            if isinstance(side, (list, tuple)):
                pay(ELEMENT * len(side) * (max(other, 0) if isinstance(other, int) else 1))
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * abs(right) if operator == "**" else left.bit_length() + right.bit_length()
            if bits > WIDEST:
                raise SecurityError(f"a chat template made a number of more than {WIDEST} bits")
        return super().call_binop(context, operator, left, right)


def _raise_exception(message: Any = "") -> None:
    raise JinjaError(shown(message))


@pass_context
def _strftime_now(context: Context, format: str) -> str:
    now = context.get("%now")
    if not isinstance(now, datetime.datetime):
        raise SecurityError("strftime_now has no clock")
    if len(format) > 200:
        raise SecurityError("strftime_now was given a format of more than 200 characters")
    safe_format(format)
    return marked(format).like(now.strftime(format))


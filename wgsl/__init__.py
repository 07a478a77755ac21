"""The WGSL kernels, and the composer that turns a template into one kernel.

A kernel is one `.wgsl` file whose entry point has the file's name.  The files stay
readable WGSL: line statements (`//% for j in range(R)`, `//% if`, `//% include`,
`//% from "quant/q4_1.wgsl" import weight`) unroll what the drivers must see unrolled,
and `${ expression }` places a value.  jinja2 does the work; an unknown name is an error.
"""

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2

Choice = int | float | str | bool | tuple[object, ...] | Callable[..., str]

XYZW = "xyzw"
DEFAULTS: dict[str, Choice] = {
    "key_format": "f32",
    "value_format": "f32",
    "broadcast": False,
    "one_bit": False,
    "head_norms": "each",
    "sloped": False,
    "pieces": 1,
    "positions": False,
    "kinds": False,
    "both_ways": False,
    "experts": False,
    "sinks": False,
    "heads": False,
    "values_at": 0,
    "biased": False,
    "groups": 0,
    "texels": "",
}


@cache
def _environment() -> "jinja2.Environment":
    import jinja2

    def load(name: str) -> str | None:
        resource = files("llamay.wgsl").joinpath(name)
        return resource.read_text("utf-8") if resource.is_file() else None

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(load),
        line_statement_prefix="//%",
        line_comment_prefix="//#",
        variable_start_string="${",
        variable_end_string="}",
        block_start_string="<%",
        block_end_string="%>",
        comment_start_string="<#",
        comment_end_string="#>",
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        autoescape=False,
        extensions=["jinja2.ext.do"],
    )


def compose(name: str, **choices: Choice) -> str:
    """The WGSL text of kernel `name` under the given choices.

    What DEFAULTS names may be left out: the exact cache, and what few models have.
    Raises jinja2.UndefinedError when the template needs a choice that is not given.
    """
    template = _environment().get_template(f"{name}.wgsl")
    return template.render(**{**DEFAULTS, **choices}, c=XYZW)


@cache
def digest() -> str:
    """A hash of every template's text, in hexadecimal: what was measured or kept of other kernels is not of these."""
    import hashlib

    total = hashlib.sha256()
    pending = [files("llamay.wgsl")]
    while pending:
        for entry in sorted(pending.pop().iterdir(), key=lambda found: found.name):
            if entry.is_dir():
                pending.append(entry)
            elif entry.name.endswith(".wgsl"):
                total.update(entry.name.encode() + b"\0" + entry.read_bytes())
    return total.hexdigest()


def names() -> list[str]:
    """Every kernel: the top-level .wgsl files, by name."""
    return sorted(
        entry.name.removesuffix(".wgsl") for entry in files("llamay.wgsl").iterdir() if entry.name.endswith(".wgsl")
    )

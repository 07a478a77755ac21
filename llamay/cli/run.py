"""`llamay run`: completes a text, answers a question, or talks."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from llamay.cli.flags import Parser, argument, flag, kv_flag
from llamay.cli.terminal import note
from llamay.errors import UsageError

if TYPE_CHECKING:
    from llamay.sample import Sampling
    from llamay.serve.loading.load import Loaded

NAME = "run"
HELP = "complete a text (-p), answer a question, or talk with a model"

EPILOG = """\
llamay run MODEL "question"    answers through the model's chat template
llamay run MODEL               talks, in a terminal; /help there explains
llamay run -m MODEL -p TEXT    completes the raw text
llamay run MODEL -context NAME "question"    asks behind a saved context, whose tokens are not computed again

MODEL is an installed name or a GGUF file; "" is the default model. Piped input is appended to the
question or text. The answer goes to stdout, all else to stderr."""

SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty")  # flags that are fields of Sampling


def configure(parser: Parser) -> None:
    parser.epilog = EPILOG
    argument(parser, "model", nargs="?", metavar="MODEL", completes="model", help="a name or a file")
    argument(parser, "words", nargs="*", metavar="QUESTION", help="what to ask")
    flag(parser, "-m", metavar="MODEL", completes="model", help="the model, as a flag; all words are the question then")
    flag(parser, "-p", metavar="TEXT", help="complete this text, without a chat template")
    flag(parser, "-n", type=int, metavar="N", help="at most N tokens (default: until the model ends)")
    flag(parser, "-system", metavar="TEXT", help="the system message of the chat")
    flag(parser, "-context", dest="saved", metavar="NAME", help="go on from a saved context, which stays as it is")
    flag(parser, "-recompute", action="store_true", help="with -context: compute its tokens where its pages are of no use here, or damaged")
    add_load_flags(parser)
    flag(
        parser,
        "-seed",
        type=int,
        metavar="N",
        help="the same seed gives the same text (default: drawn; -stats shows it)",
    )
    flag(
        parser, "-temp", type=float, dest="temperature", metavar="T", help="0 is greedy (default: the file's, else 0.8)"
    )
    flag(parser, "-top-k", type=int, metavar="K", help="sample from the K likeliest; 0: off")
    flag(parser, "-top-p", type=float, metavar="P", help="sample from the likeliest that sum to P; 1: off")
    flag(parser, "-min-p", type=float, metavar="P", help="drop what is less likely than P times the likeliest; 0: off")
    flag(parser, "-repeat-penalty", type=float, metavar="R", help="divide the logits of recent tokens by R; 1: off")
    flag(parser, "-stats", action="store_true", help="print where the time went")


def add_load_flags(parser: Parser) -> None:
    """The flags of every command that loads a model into an executor."""
    flag(
        parser,
        "-c",
        type=int,
        dest="context",
        metavar="N",
        help="tokens of context (default: the model's, at most 4096, or 2048 where those take much memory)",
    )
    kv_flag(parser)
    flag(parser, "-kv-mem", metavar="SIZE", help="memory for keys and values, as in 2G (default: a share of what is free)")
    flag(parser, "-device", dest="backend", metavar="D", help="auto, webgpu, webgpu:NAME or numpy (default: auto)")


def run(args: argparse.Namespace) -> int:
    from llamay import settings
    from llamay.cli import answer, chat, models, saved, status
    from llamay.serve import sampling
    from llamay.serve.engine import Bounds, Engine
    from llamay.serve.loading import load
    from llamay.serve.request import Limits

    name, question = words(args)
    asked = join(question if args.p is None else args.p, _piped())
    if args.saved is None and args.recompute:
        raise UsageError("-recompute is for a saved context; name one with -context")
    if args.saved is not None and args.system is not None:
        raise UsageError("-system opens a conversation, and -context goes on with one: give one of them")
    if not asked and args.p is None and args.saved is None and not _terminal():
        raise UsageError('nothing to answer: give a question, -p "text", or pipe one in')
    if args.n is not None and args.n < 0:
        raise UsageError(f"-n is {args.n}; it may be 0 or a number of tokens")
    sampling.checked(_sampling(args))  # before the model is loaded
    in_force = settings.load({key: getattr(args, key) for key in ("context", "kv", "kv_mem", "backend")})
    path = models.path(name, in_force)
    with status.waiting(f"loading {name or 'the model'}"):
        loaded = load.load(path, in_force, shared=args.saved is not None)  # pages laid out as where contexts are saved
    with Engine.of(loaded, Bounds(running=1)) as engine:
        limits = Limits(tokens=args.n, ends=loaded.tokenizer.end_tokens)
        how = sampling_of(args, loaded)
        if args.p is None and loaded.language.template.name != "file":
            note(f"the file has no chat template; using {loaded.language.template.name}")
        for news in loaded.notes:
            note(news)
        context: int | None = None
        if args.saved is not None:
            prompt, context = saved.reopen(
                engine, loaded, in_force.contexts, args.saved, asked, raw=args.p is not None, recompute=args.recompute
            )
        elif not asked and args.p is None:
            return chat.talk(engine, loaded, how, limits, args.system, args.seed)
        elif args.p is not None:
            prompt = loaded.language.raw(asked)
        else:
            prompt = loaded.language.chat(chat.opening(args.system, asked))
        given = answer.show(engine, loaded, prompt, how, limits, args.seed, context)
        if given.done is None:
            raise KeyboardInterrupt
        answer.close(given.done, loaded, how, stats=args.stats)
    return 0


def words(args: argparse.Namespace) -> tuple[str, str]:
    """The model's name, empty for the default, and the question."""
    given = [] if args.model is None else [args.model, *args.words]
    name = args.m if args.m is not None else (given.pop(0) if given else "")
    if given and args.p is not None:
        raise UsageError(f"-p is a text to complete and {given[0]!r} a question: give one of them")
    return name, " ".join(given)


def sampling_of(args: argparse.Namespace, loaded: "Loaded") -> "Sampling":
    """The flags over what the file recommends; notes on the file go to stderr."""
    from llamay.serve import sampling

    for news in loaded.language.notes:
        note(news)
    return sampling.checked(_sampling(args), loaded.language.sampling)


def _sampling(args: argparse.Namespace) -> dict[str, Any]:
    """The flags that choose tokens, None for those that were not given."""
    return {name: getattr(args, name) for name in (*SAMPLING, "seed")}


def join(text: str, piped: str) -> str:
    """The text with what was piped in below it."""
    return "\n".join(part for part in (text, piped) if part)


def _piped() -> str:
    """What was piped in, empty in a terminal."""
    if sys.stdin is None or _terminal():
        return ""
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def _terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()

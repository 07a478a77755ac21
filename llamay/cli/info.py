"""`llamay info`: what a model file holds and what llamay makes of it."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llamay.cli.flags import Parser, argument, flag, json_flag
from llamay.errors import UsageError

if TYPE_CHECKING:
    from llamay.cli.facts import Facts
    from llamay.gguf import File

POOLED = {"mean": "the mean over all tokens", "first": "of the first token", "last": "of the last token"}

NAME = "info"
HELP = "show what a model file holds: network, tokenizer, quantisation, tensor audit"


def configure(parser: Parser) -> None:
    argument(parser, "model", nargs="?", metavar="MODEL", completes="model", help="a name or a file")
    flag(parser, "-m", metavar="MODEL", completes="model", help="the model, as a flag")
    flag(parser, "-tensors", action="store_true", help="list every tensor")
    flag(parser, "-meta", action="store_true", help="list every metadata key")
    flag(parser, "-supported", action="store_true", help="list what llamay reads: tensor types, networks, tokenizers")
    flag(
        parser, "-tokenize", metavar="FILE", completes="file", help="tokenize a text: bytes a token, round trip a line"
    )
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    from llamay import gguf, settings
    from llamay.cli import facts, models, supported

    if args.supported:
        tables = supported.tables()
        print(json.dumps(tables, indent=2) if args.json else "\n".join(supported.lines(tables)))
        return 0
    if args.m is not None and args.model is not None:
        raise UsageError(f"-m {args.m} and {args.model} both name a model: give one of them")
    in_force = settings.load()
    path = models.path(args.m if args.m is not None else args.model or "", in_force)
    with gguf.open(path) as file:
        found = _asked(args, file)
        if found is None:
            found = facts.gather(file)
            if "network" in found:
                found["network"]["kv_measured"] = facts.kv_measured(file, in_force)
            text = lines(found)
        else:
            text = _asked_lines(args, found)
        print(json.dumps(found, indent=2) if args.json else "\n".join(text))
    return 0


def _asked(args: argparse.Namespace, file: "File") -> Any:
    """The data of -tensors, -meta or -tokenize; None without them."""
    from llamay import tok
    from llamay.cli import facts

    if args.tensors:
        return facts.tensors(file)
    if args.meta:
        return facts.metadata(file)
    if args.tokenize is not None:
        return facts.tokenized(tok.load(file.metadata), Path(args.tokenize).read_bytes())
    return None


def _asked_lines(args: argparse.Namespace, found: Any) -> list[str]:
    if args.tensors:
        return tensor_lines(found)
    return meta_lines(found) if args.meta else token_lines(found)


def lines(facts: "Facts") -> list[str]:
    """The page without flags."""
    from llamay.cli.terminal import count, plain
    from llamay.store.progress import size

    rows = [("file", plain(path)) for path in facts["files"]]
    counts = f"{facts['tensors']} tensors, {facts['keys']} keys"
    rows.append(("size", f"{size(facts['bytes'])}, GGUF v{facts['gguf_version']}, {counts}"))
    if facts["name"]:
        rows.append(("name", plain(facts["name"])))
    rows.append(("architecture", f"{plain(facts['architecture'] or 'not said')}, {count(facts['weights'])} weights"))
    if "network" in facts:
        rows += network_rows(facts["network"])
    if "tokenizer" in facts:
        rows += tokenizer_rows(facts["tokenizer"])
    rows += [("refused", plain(reason)) for reason in facts["refused"]]
    text = [f"{name:<14}{value}" for name, value in rows]
    text += histogram_lines(facts)
    if "audit" in facts:
        text += ["", plain(facts["audit"]["text"])]
    return text


def network_rows(network: "Facts") -> list[tuple[str, str]]:
    """Layers, heads, context, rope and what a token costs in the cache."""
    from llamay.store.progress import size

    kv, state = network["kv_bytes_a_token"], network["state"]
    whole = size(kv["f32"] * network["context"])
    others = ", ".join(f"{name}: {bytes}" for name, bytes in kv.items() if name != "f32")
    if state:
        rows = [
            ("layers", f"{network['layers']}, hidden {network['hidden']}"),
            ("state space", _space(state)),
            ("context", f"{network['context']} tokens"),
            ("state bytes", f"{state['bytes']} a context, however long; {size(state['page_bytes'])} a page of 16 tokens"),
        ]
        return [*rows, *_unread(network)]
    rows = [
        ("layers", f"{network['layers']}, hidden {network['hidden']}, feed forward {_each(network['feed_forward'])}"),
        *([("experts", _experts(network["experts"]))] if network["experts"] else []),
        ("heads", f"{_each(network['heads'])}, kv heads {_each(network['kv_heads'])}"),
        ("head dim", str(network["head_dim"])),
        ("context", f"{network['context']} tokens"),
        *position_rows(network),
    ]
    if network["pooling"]:
        head = "; a head makes a score of it" if network["ranks"] else ""
        rows.append(("vector", f"{network['hidden']} values, {POOLED[network['pooling']]}{head}"))
    else:
        rows.append(("KV bytes", f"{kv['f32']} a token ({others}), {whole} for the whole context"))
        rows += kv_rows(network.get("kv_measured"))
    if network["sliding_layers"]:
        window = f"{network['sliding_window']} tokens in {network['sliding_layers']} of {network['layers']} layers"
        base = network.get("rope_base_sliding")
        rows.append(("window", f"{window}, rope base {base:.12g} there" if base else window))
    return [*rows, *_unread(network)]


def _unread(network: "Facts") -> list[tuple[str, str]]:
    return [("unread keys", ", ".join(network["unread_keys"]))] if network["unread_keys"] else []


def _space(state: "Facts") -> str:
    groups = f" in {state['groups']} groups" if state["groups"] > 1 else ""
    heads = "" if state["heads"] == state["inner"] else f" in {state['heads']} heads{groups}"
    return f"{state['inner']} channels{heads} of {state['states']} states each, convolution over {state['convolution']} tokens"


def position_rows(network: "Facts") -> list[tuple[str, str]]:
    """How the model tells positions apart."""
    if network["positions"] != "rope":
        return [("positions", network["positions"])]
    rope = f"{network['rope_base']:.12g}, {network['rope_dimensions']} of {network['head_dim']} dimensions turn"
    return [("rope base", f"{rope}, scaled {network['rope_scaling']}" if network["rope_scaling"] else rope)]


def _experts(experts: "Facts") -> str:
    shared = f", and one of {experts['shared_width']} that all use" if experts["shared_width"] else ""
    return f"{experts['count']} of that width, {experts['used']} for each token{shared}"


def kv_rows(measured: "Facts | None") -> list[tuple[str, str]]:
    """Which KV formats are safe, as far as `verify` has measured it."""
    if measured is None:
        return [("KV formats", "f32 is exact; `llamay verify` measures whether f16, vq8 and q8 are safe")]
    found = measured["distances"]
    words = [f"{kv} off by {found[kv]:.2g}% {'' if kv in measured['safe'] else '(NOT SAFE)'}".rstrip() for kv in found]
    whole = "all safe" if len(measured["safe"]) == len(found) else f"safe: {', '.join(['f32', *measured['safe']])}"
    return [("KV formats", f"f32 exact, {', '.join(words)}; {whole} (bound {measured['bound']:g}%)")]


def tokenizer_rows(tokenizer: "Facts") -> list[tuple[str, str]]:
    """Kind, special tokens, chat template; a guess and its reason."""
    from llamay.cli.terminal import plain

    kind = f"{tokenizer['kind']} {tokenizer['pre']}" if tokenizer["pre"] else tokenizer["kind"]
    ends = " ".join(str(token) for token in tokenizer["end_tokens"])
    text = f"{kind}, {tokenizer['tokens']} tokens, bos {_or_none(tokenizer['bos'])}, ends {ends or 'none'}"
    rows = [("tokenizer", plain(text))]
    if tokenizer["guessed"]:
        rows.append(("", f"guessed: {plain(tokenizer['guessed'])}"))
    rows += [("", plain(note)) for note in tokenizer["notes"]]
    templates = [f"{plain(name)} (sha256 {digest[:12]})" for name, digest in tokenizer["chat_templates"].items()]
    return [*rows, ("chat template", ", ".join(templates) or "none")]


def histogram_lines(facts: "Facts") -> list[str]:
    """A bar a tensor type, by bytes."""
    from llamay.cli.terminal import bar
    from llamay.store.progress import size

    rows = facts["quantisation"]
    total = sum(row["bytes"] for row in rows) or 1
    bits = total * 8 / max(facts["weights"], 1)
    text = [f"{'quantisation':<14}{bits:.2f} bits a weight"]
    for row in rows:
        share = row["bytes"] / total
        tensors = "1 tensor" if row["tensors"] == 1 else f"{row['tensors']} tensors"
        text.append(f"  {row['type']:<8} {bar(share):<24} {share:6.1%}  {size(row['bytes']):>9}  {tensors}")
    return text


def tensor_lines(tensors: list["Facts"]) -> list[str]:
    """Name, type, shape, bytes."""
    from llamay.cli.terminal import plain

    names = [plain(tensor["name"]) for tensor in tensors]
    wide = max(map(len, names), default=0)
    text = []
    for name, tensor in zip(names, tensors, strict=True):
        shape = "x".join(map(str, tensor["shape"]))
        text.append(f"{name:<{wide}}  {tensor['type']:<7}  {shape:<14}  {tensor['bytes']}")
    return text


def meta_lines(metadata: "Facts") -> list[str]:
    """`key = value`; long texts and arrays cut, with their length."""
    text = []
    for key, value in metadata.items():
        if isinstance(value, dict):
            more = ", ..." if value["count"] > len(value["first"]) else ""
            first = ", ".join(_short(element, 40) for element in value["first"])
            text.append(f"{_short(key, 200)} = {value['array']}[{value['count']}] [{first}{more}]")
        else:
            text.append(f"{_short(key, 200)} = {_short(value, 100)}")
    return text


def token_lines(found: "Facts") -> list[str]:
    """A row a line of the text, then the whole."""
    text = []
    for row in found["lines"]:
        rate = row["bytes"] / max(row["tokens"], 1)
        mark = "ok" if row["round_trip"] else "DIFFERS"
        text.append(f"line {row['line']:>5}  {row['bytes']:>6} bytes  {row['tokens']:>6} tokens  {rate:5.2f}  {mark}")
    good = sum(row["round_trip"] for row in found["lines"])
    whole = "ok" if found["round_trip"] else "DIFFERS"
    text.append(f"{found['bytes']} bytes, {found['tokens']} tokens, {found['bytes_a_token']:.3f} bytes a token")
    folded = "" if found["of"] == "bytes" else " (its tokens: this tokenizer folds text)"
    text.append(f"round trip: {good} of {len(found['lines'])} lines, the whole text {whole}{folded}")
    return text


def _short(value: Any, limit: int) -> str:
    from llamay.cli.terminal import plain

    text = plain(value) if isinstance(value, str) else str(value)
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def _each(value: int | list[int]) -> str:
    """A number, or the range where layers differ."""
    return str(value) if isinstance(value, int) else f"{min(value)} to {max(value)} by layer"


def _or_none(value: int | None) -> str:
    return "none" if value is None else str(value)

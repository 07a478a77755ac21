"""Settings: defaults, overlaid by config.toml, by LLAMAY_* variables and by flags, each value knowing its origin."""

import difflib
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from llamay.errors import SettingsError

PREFIX = "LLAMAY_"
CONFIG_VARIABLE = "LLAMAY_CONFIG"  # where config.toml lies, when not in the platform's folder
NOT_SETTINGS = frozenset({CONFIG_VARIABLE, "LLAMAY_SOAK"})  # variables that are read elsewhere

_SIZE = re.compile(r"\d+(\.\d+)?[MmGg]")
_WHOLE = re.compile(r"-?\d{1,40}")  # Python refuses to read thousands of digits
KV_FORMATS = ("f32", "f16", "vq8", "q8")  # those of llamay.tensor.cache, a test sees to it


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise SettingsError("the home folder is not known: HOME is not set and this user has no entry; set HOME") from error


def _config_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or _home() / "AppData" / "Roaming") / "llamay"
    if sys.platform == "darwin":
        return _home() / "Library" / "Application Support" / "llamay"
    return Path(os.environ.get("XDG_CONFIG_HOME") or _home() / ".config") / "llamay"


def _models_folder() -> Path:
    return _home() / ".llamay" / "models"


def _contexts_folder() -> Path:
    return _home() / ".llamay" / "contexts"


def _cache_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or _home() / "AppData" / "Local") / "llamay" / "cache"
    if sys.platform == "darwin":
        return _home() / "Library" / "Caches" / "llamay"
    return Path(os.environ.get("XDG_CACHE_HOME") or _home() / ".cache") / "llamay"


def _says(help: str) -> dict[str, str]:
    return {"help": help}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the machine's owner may choose; every field is also LLAMAY_<NAME> and a key of config.toml."""

    backend: str = field(default="auto", metadata=_says("where to compute: auto, webgpu, webgpu:NAME or numpy"))
    model: str = field(default="", metadata=_says("the model commands use when none is named"))
    models: Path = field(default_factory=_models_folder, metadata=_says("the folder of installed models"))
    contexts: Path = field(default_factory=_contexts_folder, metadata=_says("the folder of saved contexts"))
    cache: Path = field(default_factory=_cache_folder, metadata=_says("the folder of what was measured, digests of model files and the lines typed in chats"))
    context: int = field(default=0, metadata=_says("tokens of context; 0: the model's own, at most 4096, or 2048 where those take much memory"))
    kv: str = field(default="f32", metadata=_says("how keys and values are kept: f32, f16, vq8 or q8"))
    device_memory: str = field(
        default="", metadata=_says("what of the device's memory a model may take, as in 6G or 800M; empty: what is free")
    )
    kv_mem: str = field(
        default="", metadata=_says("memory for keys and values that requests share, as in 2G; empty: a share of what is free")
    )
    require_webgpu: bool = field(default=False, metadata=_says("refuse numpy when no adapter is found"))
    host: str = field(default="127.0.0.1:11435", metadata=_says("the server that `llamay ps`, `stop` and `tui` speak to, as HOST:PORT or a URL"))
    api_key: str = field(default="", metadata=_says("the key that they send to it, and that `llamay serve` demands"))

    def __post_init__(self) -> None:
        for setting in fields(self):
            if wrong := _wrong(setting.name, getattr(self, setting.name)):
                raise SettingsError(wrong)

    @property
    def device_bytes(self) -> int:
        """`device_memory` in bytes, 0 where it is left to the system."""
        return _bytes(self.device_memory)

    @property
    def kv_bytes(self) -> int:
        """`kv_mem` in bytes, 0 where it is left to llamay."""
        return _bytes(self.kv_mem)


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings, and for each field where its value came from: default, a file, a variable or a flag."""

    settings: Settings
    origins: Mapping[str, str]


def config_file(environ: Mapping[str, str] = os.environ) -> Path:
    """The config file that is read when it exists."""
    named = environ.get(CONFIG_VARIABLE)
    return _expanded(CONFIG_VARIABLE, named) if named else _config_folder() / "config.toml"


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def _wrong(name: str, value: Any) -> str:
    """What is wrong with the value of a setting, and what it may be; empty where nothing is."""
    may = ""
    match name:
        case "backend":
            word, colon, adapter = value.partition(":")
            if word not in ("auto", "webgpu", "numpy") or (colon and (word != "webgpu" or not adapter)):
                may = "auto, webgpu, webgpu:NAME or numpy"
        case "kv" if value not in KV_FORMATS:
            may = f"{', '.join(KV_FORMATS[:-1])} or {KV_FORMATS[-1]}"
        case "device_memory" | "kv_mem" if value and not _SIZE.fullmatch(value):
            may = "a size such as 6G or 800M, or empty"
        case "context" if value < 0:
            may = "0 (the model's own) or a number of tokens"
    called = "backend (-device)" if name == "backend" else name
    return f"{called} is {value!r}; it may be {may}" if may else ""


def _bytes(size: str) -> int:
    """A size such as 6G in bytes; 0 for an empty one."""
    return int(float(size[:-1]) * {"M": 1 << 20, "G": 1 << 30}[size[-1].upper()]) if size else 0


def load(flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings in force; `flags` maps field names to values, None meaning not given."""
    return resolve(flags).settings


def resolve(flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] = os.environ) -> Resolved:
    """Overlays the four sources.

    Raises SettingsError, naming the source, for an unknown key or a value of the wrong
    type.  An unreadable config file is an error; a missing one is not, unless LLAMAY_CONFIG names it.
    """
    types = {setting.name: setting.type for setting in fields(Settings)}
    values: dict[str, Any] = {}
    origins = dict.fromkeys(types, "default")
    for origin, name, value in [*_from_file(environ, types), *_from_environment(environ, types)]:
        values[name], origins[name] = _convert(origin, name, types[name], value), origin
        if wrong := _wrong(name, values[name]):
            raise SettingsError(f"{origin}: {wrong}")
    for name, value in (flags or {}).items():
        if value is not None:
            values[name], origins[name] = _convert(f"the flag for {name}", name, types[name], value), "flag"
    return Resolved(Settings(**values), origins)


def _from_file(environ: Mapping[str, str], known: Iterable[str]) -> list[tuple[str, str, Any]]:
    path = config_file(environ)
    if not path.exists():
        if CONFIG_VARIABLE in environ:
            raise SettingsError(f"{CONFIG_VARIABLE} names {path}, and there is no such file")
        return []
    import tomllib

    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from error
    for key in table:
        if key not in known:
            raise SettingsError(f"{path}: no setting {key!r}{_instead(key, {name: name for name in known})}")
    return [(str(path), key, value) for key, value in table.items()]


def _from_environment(environ: Mapping[str, str], known: Iterable[str]) -> list[tuple[str, str, Any]]:
    found = []
    by_variable = {variable(name): name for name in known}
    for key, value in environ.items():
        if not key.startswith(PREFIX) or key in NOT_SETTINGS:
            continue
        if key not in by_variable:
            bare = {name: variable(name) for name in known}
            raise SettingsError(f"no setting has the variable {key}{_instead(key.removeprefix(PREFIX).lower(), bare)}")
        if value:  # set but empty is how shells unset for one command
            found.append((key, by_variable[key], value))
    return found


def _convert(origin: str, name: str, type_: Any, value: Any) -> Any:
    """Checks a value's type; text from a variable or a flag is parsed, a TOML value must have the type."""
    if type_ is Path and isinstance(value, str | Path):
        return _expanded(origin, value)
    if type_ is bool:
        words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in words:
            return words[value.lower()]
    elif type_ is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and _WHOLE.fullmatch(value):
            return int(value)
    elif type_ is str and isinstance(value, str):
        return value
    expected = {bool: "true or false", int: "a whole number", str: "text", Path: "a path"}[type_]
    raise SettingsError(f"{origin}: {name} is {value!r}; expected {expected}")


def _expanded(origin: str, path: str | Path) -> Path:
    """The path with ~ or ~NAME replaced."""
    if "\0" in str(path):
        raise SettingsError(f"{origin}: {str(path)!r} is no path: it holds a null character")
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise SettingsError(f"{origin}: {str(path)!r} begins with a home folder that is not known") from error


def _instead(key: str, known: Mapping[str, str]) -> str:
    """What was meant perhaps, else what there is: `llamay env` cannot list it then. `known` maps names to how they are written."""
    close = difflib.get_close_matches(key, list(known), n=1)
    return f"; did you mean {known[close[0]]}?" if close else f"; there are {', '.join(known.values())}"

"""The models of this machine by name: the language of each, read once, and the engine that answers for all of them."""

import contextlib
import gc
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llamay.errors import ContextTooLong, LlamayError, ModelFileError, NotInstalled, StoreError, UsageError
from llamay.serve import options as asked
from llamay.serve.engine import Bounds, Engine
from llamay.serve.loading import devices, usual
from llamay.serve.loading.language import Language
from llamay.serve.loading.load import Loaded, context_of, load
from llamay.serve.loading.quicker import SMALL
from llamay.serve.loading.usual import Does
from llamay.serve.options import Options
from llamay.serve.request import Keeper
from llamay.serve.ticket import Ticket
from llamay.settings import Settings
from llamay.store import Installed, Store, names, resolve
from llamay.store.resolve import find

LANGUAGES = 8  # kept: a vocabulary of 150,000 takes some 60 MB


@dataclass(frozen=True, slots=True)
class Served:
    """A model as it is named to others, and its file.  `installed` is None for a file that was named at the start."""

    name: str
    path: Path
    installed: Installed | None = None


class Models:
    """What may be asked for by name.  A name from outside is an installed one or `default`, never a path.

    Any number of threads may use it.
    """

    def __init__(self, settings: Settings, bounds: Bounds | None = None, default: str = "") -> None:
        """`default` may be a path; it answers to its stem then, and to no name at all.  NotInstalled where there is no such model."""
        self.settings = settings
        self.store = Store(settings.models)
        self.engine = Engine(self._open, bounds, self._light)
        self._lock = threading.Lock()
        self._languages: OrderedDict[Path, Language] = OrderedDict()
        self._loaded: dict[str, Loaded] = {}
        self._default: Served | None = None
        wanted = default or settings.model
        try:
            self._default = self._of_owner(wanted) if wanted else None
        except BaseException:
            self.engine.close()
            raise

    # names

    def served(self, name: str = "") -> Served:
        """The model of a name from outside, the default where it is empty; NotInstalled for one that is not there."""
        if not name:
            return self.default
        if self._default is not None and _folded(name) == _folded(self._default.name):
            return self._default
        found = self._installed(name)
        return Served(str(found.name), self.store.file(found), found)

    def check(self, *others: str) -> None:
        """Raises what will be wrong with every request: with the model that was named at the start and `others` by their names, as
        far as their languages tell, and NoAdapter where one was asked for that is not there.
        """
        named = [] if self._default is None else [self._default]
        for served in (*named, *(self.served(name) for name in others if name)):
            self.language(served)
        if self.settings.backend.startswith("webgpu") or (self.settings.backend == "auto" and self.settings.require_webgpu):
            devices.choose(self.settings)

    @property
    def default(self) -> Served:
        """The model that was named at the start, else the newest installed that answers, else the newest."""
        if self._default is not None:
            return self._default
        return self._served(usual.newest(self.store, "answers"))

    def usual(self, does: Does) -> Served:
        """The model of a request that names none and wants vectors or ranks; the default where none makes any."""
        with contextlib.suppress(OSError):
            if self._default is not None and usual.does_of(self._default.path) == does:
                return self._default
        found = usual.newest(self.store, does)
        return self.default if found is None else self._served(found)

    def _served(self, found: Installed | None) -> Served:
        installed = self.store.survey().models if found is None else [found]
        if not installed:
            raise NotInstalled("no model is installed and none was named; `llamay pull MODEL` gets one")
        return Served(str(installed[0].name), self.store.file(installed[0]), installed[0])

    def all(self) -> list[Served]:
        """The default, then every installed model that is whole, newest first."""
        found = [self._default] if self._default is not None else []
        known = {one.name for one in found}
        for model in self.store.survey().models:
            if str(model.name) not in known and model.manifest.models():
                with contextlib.suppress(StoreError):  # a blob is missing: it cannot be asked for
                    found.append(Served(str(model.name), self.store.file(model), model))
        return found

    # what a name stands for

    def language(self, served: Served) -> Language:
        """Its vocabulary, template and sampling; the model need not be loaded for it.

        Raises ModelFileError for a file that cannot be run, ContextTooLong where all models are to have more than it has.
        """
        with self._lock:
            known = self._languages.get(served.path)
            if known is not None:
                self._languages.move_to_end(served.path)
                return known
        with told_as(served.path, served.name):
            read = Language.read(served.path)
        try:
            read.context = context_of(self._context(served, read), read.config)  # where it is loaded: see `load`
        except ContextTooLong as error:
            made, asked = read.config.context, self.settings.context
            raise ContextTooLong(
                f"{served.name} was made for a context of {made} tokens, and models here are to have {asked}; "
                f"start with -c {made} or less"
            ) from error
        with self._lock:
            kept = self._languages.setdefault(served.path, read)
            while len(self._languages) > LANGUAGES:
                self._languages.popitem(last=False)
            return kept

    def loaded(self, name: str) -> Loaded | None:
        """The model, while it is on a device."""
        with self._lock:
            found = self._loaded.get(name)
            if found is not None and found.closed:
                del self._loaded[name]
                return None
            return found

    def load(self, served: Served) -> Loaded:
        """Has it loaded, waits for that, and returns it; raises what is wrong with it.

        It may be given back at once where others want its place; the engine loads it again for who has something to do.
        """
        found = self.engine.call(lambda scheduler: self.loaded(served.name), served.name)
        if found is None:
            raise LlamayError(f"{served.name} ended while it was loaded")
        return found

    def ask(
        self,
        served: Served,
        tokens: tuple[int, ...],
        options: Options,
        *,
        stops: tuple[str, ...] = (),
        via: str = "",
        keeper: Keeper | None = None,
    ) -> Ticket:
        """Asks for an answer to token ids; `stops` are those of the chat template, `via` and `keeper` as in Request."""
        language = self.language(served)
        given: dict[str, Any] = {**options}
        request = asked.request(
            tokens, asked.checked(given), language.sampling, ends=language.tokenizer.end_tokens, stops=stops,
            via=via, model=served.name, keeper=keeper,
        )  # fmt: skip
        return self.engine.submit(request)

    def close(self) -> None:
        """Ends what is under way and gives memory back.  Safe to call twice."""
        self.engine.close()

    def _of_owner(self, name: str) -> Served:
        """The default as the machine's owner names it: a path too."""
        path = resolve(self.store, name)
        try:
            found = find(self.store, name)
        except (NotInstalled, UsageError):
            return Served(names.slug(path.stem), path)
        return Served(str(found.name), path, found)

    def _installed(self, name: str) -> Installed:
        """By its name or the source it was pulled from; unlike what an owner types, never a path."""
        with contextlib.suppress(UsageError):
            found = self.store.installed(names.parse(name))
            if found is not None:
                return found
        models = self.store.survey().models
        for model in models:
            if name == model.source:
                return model
        there = ", ".join([one.name for one in self.all()][:5])
        raise NotInstalled(f"model {name[:200]!r} is not installed; there is: {there or 'none'}. `llamay pull` gets more")

    def _context(self, served: Served, language: Language) -> int:
        """The context it is asked to have.  An encoder beside those that answer, for which that was said, has its own at most."""
        asked, config = self.settings.context, language.config
        return min(asked, config.context) if config.pooling and served is not self._default else asked

    def _light(self, name: str) -> bool:
        """Whether it is a small encoder, as far as its language was read; the engine's thread asks."""
        try:
            path = self.served(name).path
            small = path.stat().st_size <= SMALL
        except (LlamayError, OSError):
            return False  # loading it tells what is wrong
        with self._lock:
            language = self._languages.get(path)
        return small and language is not None and language.config.both_ways

    def _open(self, name: str) -> Loaded:
        served = self.served(name)
        with self._lock:
            closed = [one for one, model in self._loaded.items() if model.closed]
            for one in closed:
                del self._loaded[one]
        if closed:
            gc.collect()  # a device ends with the last reference to it, and wgpu's objects refer to each other
        with told_as(served.path, served.name):
            language = self.language(served)
            as_here = replace(self.settings, context=self._context(served, language))
            model = load(served.path, as_here, shared=True, language=language)
        with self._lock:
            self._loaded[name] = model
        return model


@contextlib.contextmanager
def told_as(path: Path, name: str) -> Iterator[None]:
    """An error about a file that a client named tells that name: where it lies on this machine is nobody's business."""
    try:
        yield
    except ModelFileError as error:
        text = str(error).replace(str(path), name).replace(f"{path.parent}{os.sep}", "")
        raise type(error)(text) from error


def _folded(name: str) -> str:
    """A name as it is compared: without case, and without the tag that need not be said."""
    return name.lower().removesuffix(":latest")

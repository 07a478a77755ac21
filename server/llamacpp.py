"""Routes of llama.cpp's server: tokenize, detokenize, apply-template, props and slots."""

from typing import Any, ClassVar

import falcon
import msgspec

from llamay import __version__
from llamay.errors import QueueFull
from llamay.serve.loading.language import Language
from llamay.serve.stats import RequestStats
from llamay.server import bodies, replies
from llamay.server.openai import wire
from llamay.server.openai.chat import check
from llamay.server.openai.messages import conversation, parted, variables
from llamay.server.refusals import Unoffered
from llamay.server.site import Site
from llamay.tok import Tokenizer


class Content(msgspec.Struct):
    """POST /tokenize."""

    content: str = ""
    model: str = ""
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class Tokens(msgspec.Struct):
    """POST /detokenize."""

    tokens: list[int] = []
    model: str = ""


class Tokenize:
    """POST /tokenize."""

    takes: ClassVar = {"POST": Content}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        body = bodies.read(request, Content, self._site.configuration.body)
        tokenizer = _language(self._site, body.model).tokenizer
        ids = tokenizer.encode(body.content, add_special=body.add_special, parse_special=body.parse_special)
        found: list[Any] = [{"id": id, "piece": _piece(tokenizer, id)} for id in ids] if body.with_pieces else ids
        replies.json(response, {"tokens": found})


class Detokenize:
    """POST /detokenize."""

    takes: ClassVar = {"POST": Tokens}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        body = bodies.read(request, Tokens, self._site.configuration.body)
        tokenizer = _language(self._site, body.model).tokenizer
        replies.json(response, {"content": tokenizer.text(body.tokens, special=True)})


class ApplyTemplate:
    """POST /apply-template: the text that a conversation comes to, which nothing answers."""

    takes: ClassVar = {"POST": wire.Chat}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        body = bodies.read(request, wire.Chat, self._site.configuration.body)
        check(body)
        messages, start = parted(conversation(body.messages))
        told = variables(body.chat_template_kwargs, body.reasoning_effort, body.reasoning)
        rendered = _language(self._site, body.model).template.render(messages, **told)
        replies.json(response, {"prompt": rendered.text + start})


class Props:
    """GET /props: what the model and its server are set to."""

    queries: ClassVar = {"GET": {"model": {"type": "string"}}}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        models = self._site.models
        served = models.served(request.get_param("model") or "")
        language, loaded = models.language(served), models.loaded(served.name)
        how, tokenizer = language.sampling, language.tokenizer
        settings = {name: getattr(how, name) for name in how.__slots__ if name not in ("logit_bias", "seed")}
        context = loaded.context if loaded is not None else models.settings.context or language.config.context
        found = {
            "default_generation_settings": {"n_ctx": context, "params": settings},
            "total_slots": models.engine.bounds.running,
            "model_alias": served.name,
            "model_path": served.path.name,  # where it lies is nobody's business
            "chat_template": language.template.source,
            "chat_template_caps": {"supports_system_role": language.template.takes_system},
            "modalities": {"vision": False, "audio": False},
            "build_info": f"llamay-{__version__}",
            "bos_token": _name(tokenizer, tokenizer.bos),
            "eos_token": _name(tokenizer, tokenizer.eos),
            "is_sleeping": loaded is None,
        }
        replies.json(response, found)


class Slots:
    """GET /slots: who takes part in the steps of the loaded models.  No prompt and no answer is in it."""

    queries: ClassVar = {"GET": {"fail_on_no_slot": {"type": "string"}}}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        models, all = self._site.models, list[dict[str, Any]]()
        for model in models.engine.stats().models:
            loaded = models.loaded(model.name)
            context = 0 if loaded is None else loaded.context
            taken = {one.slot: one for one in model.requests if one.slot is not None}
            joining = iter([one for one in model.requests if one.state == "prefill"])
            for number in range(model.slots):
                all.append(slot(len(all), model.name, context, taken.get(number) or next(joining, None)))
        if request.get_param("fail_on_no_slot") and not any(not one["is_processing"] for one in all):
            raise QueueFull(f"all {len(all)} slots are in use; requests wait in the queue")
        replies.json(response, all)


class SavedSlot:
    """POST /slots/{id}, which llama.cpp saves and restores slots by; llamay has contexts for that."""

    def on_post(self, request: falcon.Request, response: falcon.Response, id: str) -> None:
        raise Unoffered("slots are not saved: POST /v1/contexts makes a context, and /v1/contexts/{id}/snapshot saves it")


def slot(id: int, model: str, context: int, request: RequestStats | None) -> dict[str, Any]:
    """One place of a step."""
    found = {"id": id, "model": model, "n_ctx": context, "speculative": False, "is_processing": request is not None}
    if request is None:
        return found
    told = {"has_next_token": True, "n_remain": -1, "n_decoded": request.generated}
    return {**found, "id_task": request.id, "n_prompt_tokens": request.prompt, "n_prompt_tokens_cache": request.cached, "next_token": [told]}


def _language(site: Site, name: str) -> Language:
    return site.models.language(site.models.served(name))


def _piece(tokenizer: Tokenizer, id: int) -> str | list[int]:
    """The text of a token, or its bytes where they are a part of a character."""
    raw = tokenizer.token_bytes(id)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return list(raw)


def _name(tokenizer: Tokenizer, id: int | None) -> str:
    return "" if id is None else tokenizer.text([id], special=True)

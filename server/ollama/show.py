"""POST /api/show: all that is known of a model."""

from typing import Any, ClassVar

import falcon

from llamay import arch, gguf
from llamay.errors import ModelFileError
from llamay.serve import details
from llamay.serve.loading.load import context_of
from llamay.serve.models import Models, Served, told_as
from llamay.server import bodies, replies
from llamay.server.ollama import entries, lines, named, wire
from llamay.server.ollama.recipe import Recipe
from llamay.server.site import Site
from llamay.tok import thinking

TEMPLATE = "tokenizer.chat_template"


class Show:
    """Tells of a model without loading it."""

    takes: ClassVar = {"POST": wire.Show}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        body = bodies.read(request, wire.Show, self._site.configuration.body)
        served = named.served(self._site.models, named.required(body.called))
        replies.json(response, shown(self._site.models, served, verbose=bool(body.verbose)))


def shown(models: Models, served: Served, *, verbose: bool) -> dict[str, Any]:
    """The whole reply."""
    recipe = Recipe.of(models.store, served.installed)
    with told_as(served.path, served.name), gguf.open(served.path) as file:
        context = served_context(models, served, file)
        template = file.get(TEMPLATE, str, "")
        parameters = recipe.lines(context)
        found: dict[str, Any] = {
            "modelfile": modelfile(served, template, recipe.system, parameters),
            "parameters": parameters,
            "template": template,
            "details": entries.document(served),
            "model_info": info(file, served, context, verbose=verbose),
            "capabilities": ["embedding"] if embeds(file) else ["completion", *["thinking"] * (thinking.marks(template) is not None)],
            "modified_at": lines.stamp(entries.modified(served)),
        }
        if verbose:
            found["tensors"] = [
                {"name": name, "type": tensor.type.name, "shape": list(tensor.shape)}
                for name, tensor in file.tensors.items()
            ]
    found |= {name: value for name, value in (("system", recipe.system), ("license", recipe.license)) if value}
    return found | ({"messages": list(recipe.messages)} if recipe.messages else {})


def embeds(file: gguf.File) -> bool:
    """Whether it turns texts into vectors, and so answers none."""
    try:
        return bool(arch.describe(file).pooling)
    except ModelFileError:  # it cannot be run, and is shown all the same
        return False


def served_context(models: Models, served: Served, file: gguf.File) -> int:
    """The tokens that a conversation may have here, rather than those the model was made for."""
    loaded = models.loaded(served.name)
    if loaded is not None:
        return loaded.context
    try:
        config = arch.describe(file)
    except ModelFileError:  # it cannot be run, and is shown all the same
        return file.get(f"{file.get('general.architecture', str, '')}.context_length", int, 0)
    return context_of(min(models.settings.context, config.context), config)


def info(file: gguf.File, served: Served, context: int, *, verbose: bool) -> dict[str, Any]:
    """The file's metadata; arrays, which may have every word of a language, only where asked for."""
    found = {key: _value(value, verbose) for key, value in file.metadata.items() if key != TEMPLATE}
    architecture = file.get("general.architecture", str, "")
    found["general.parameter_count"] = details.of(served.path).parameters
    return found | {f"{architecture}.context_length": context}


def modelfile(served: Served, template: str, system: str, parameters: str) -> str:
    """How `create` would be told to make it."""
    rows = [f"FROM {served.name}", f'TEMPLATE """{template}"""']
    rows += [f'SYSTEM """{system}"""'] if system else []
    rows += [f"PARAMETER {' '.join(line.split(maxsplit=1))}" for line in parameters.splitlines()]
    return "\n".join(rows) + "\n"


def _value(value: gguf.Value, verbose: bool) -> Any:
    if not isinstance(value, gguf.Array):
        return value
    if not verbose or value.type.name == "ARRAY":
        return None
    if value.type.name == "STRING":
        return [piece.decode("utf-8", "backslashreplace") for piece in value.bytes()]
    return value.numpy().tolist()

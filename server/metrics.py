"""GET /metrics: the Meter and the engine's statistics as Prometheus text, under llamay's names and those of llama.cpp and vLLM."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import falcon

from llamay import __version__
from llamay.serve.stats import Stats
from llamay.server.meter import Histogram, Meter
from llamay.server.site import Site

TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = dict[str, str]
Number = int | float


@dataclass(frozen=True, slots=True)
class Metric:
    """One name with its samples."""

    name: str
    kind: str  # counter, gauge or histogram
    help: str
    samples: tuple[tuple[str, Labels, Number], ...]  # suffix of the name, labels, value

    def lines(self) -> Iterator[str]:
        """The exposition format."""
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for suffix, labels, value in self.samples:
            inner = ",".join([f'{key}="{_escaped(text)}"' for key, text in labels.items()])
            yield f"{self.name}{suffix}{{{inner}}} {value}" if inner else f"{self.name}{suffix} {value}"


class Metrics:
    """Answers Prometheus."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        """All that is counted."""
        stats = self._site.models.engine.stats()
        with self._site.meter.lock:
            found = [*_requests(self._site.meter, stats), *_tokens(self._site.meter), *_times(self._site.meter)]
        found += [*_pages(stats), *_models(stats, self._site)]
        response.content_type = TYPE
        response.text = "\n".join([line for metric in found for line in metric.lines()]) + "\n"


def _requests(meter: Meter, stats: Stats) -> Iterator[Metric]:
    running = sum(len({one.id for one in model.requests if one.state != "waiting"}) for model in stats.models)
    by_outcome = [({"outcome": outcome}, count) for outcome, count in sorted(meter.outcomes.items())]
    succeeded = [({"finished_reason": labels["outcome"]}, count) for labels, count in by_outcome]
    replies = [
        ({"method": method, "route": route, "status": str(status)}, count)
        for (method, route, status), count in sorted(meter.replies.items())
    ]
    yield _many("llamay_requests_total", "counter", "Generations by how they ended.", by_outcome)
    yield _many("vllm:request_success_total", "counter", "As llamay_requests_total.", succeeded)
    yield _many("llamay_http_replies_total", "counter", "HTTP replies.", replies)
    for name in ("llamay_requests_running", "vllm:num_requests_running", "llamacpp:requests_processing"):
        yield _one(name, "gauge", "Requests that have pages.", running)
    for name in ("llamay_requests_queued", "vllm:num_requests_waiting", "llamacpp:requests_deferred"):
        yield _one(name, "gauge", "Requests that wait.", stats.waiting)


def _tokens(meter: Meter) -> Iterator[Metric]:
    computed = meter.prompt - meter.cached
    for name in ("llamay_prompt_tokens_total", "vllm:prompt_tokens_total"):
        yield _one(name, "counter", "Tokens of prompts, those found in the cache included.", meter.prompt)
    yield _one("llamacpp:prompt_tokens_total", "counter", "Tokens of prompts that were computed.", computed)
    for name in ("llamay_generated_tokens_total", "vllm:generation_tokens_total", "llamacpp:tokens_predicted_total"):
        yield _one(name, "counter", "Tokens that were generated.", meter.generated)
    by_result: list[tuple[Labels, Number]] = [({"result": "hit"}, meter.cached), ({"result": "miss"}, computed)]
    yield _many("llamay_prefix_tokens_total", "counter", "Tokens of prompts by whether the cache had them.", by_result)
    yield _one("vllm:prefix_cache_queries_total", "counter", "Tokens that were looked for.", meter.prompt)
    yield _one("vllm:prefix_cache_hits_total", "counter", "Tokens that were found.", meter.cached)
    for name in ("llamay_preemptions_total", "vllm:num_preemptions_total"):
        yield _one(name, "counter", "How often a request gave its pages to an older one.", meter.preempted)
    yield _one("llamacpp:n_tokens_max", "gauge", "Tokens of the longest request.", meter.longest)
    yield _one("llamacpp:prompt_seconds_total", "counter", "Seconds of prefill.", meter.prefill_seconds)
    yield _one("llamacpp:tokens_predicted_seconds_total", "counter", "Seconds of decoding.", meter.decode_seconds)
    rate = computed / meter.prefill_seconds if meter.prefill_seconds else 0.0
    yield _one("llamacpp:prompt_tokens_seconds", "gauge", "Prompt tokens a second of one request.", rate)
    rate = meter.generated / meter.decode_seconds if meter.decode_seconds else 0.0
    yield _one("llamacpp:predicted_tokens_seconds", "gauge", "Generated tokens a second of one request.", rate)


def _times(meter: Meter) -> Iterator[Metric]:
    table = (
        (meter.first, "Seconds to the first token, queue included.", ("llamay_time_to_first_token_seconds", "vllm:time_to_first_token_seconds")),
        (meter.between, "Seconds between two pieces of text.", ("llamay_inter_token_seconds", "vllm:inter_token_latency_seconds")),
        (meter.each, "Seconds a token, by request.", ("llamay_time_per_output_token_seconds", "vllm:time_per_output_token_seconds")),
        (meter.queue, "Seconds in the queue.", ("llamay_queue_seconds", "vllm:request_queue_time_seconds")),
        (meter.prefill, "Seconds from admission to the first token.", ("llamay_prefill_seconds", "vllm:request_prefill_time_seconds")),
        (meter.decode, "Seconds from the first token to the last.", ("llamay_decode_seconds", "vllm:request_decode_time_seconds")),
        (meter.whole, "Seconds from the request to its end.", ("llamay_request_seconds", "vllm:e2e_request_latency_seconds")),
    )  # fmt: skip
    for histogram, help, names in table:
        for name in names:
            yield Metric(name, "histogram", help, tuple(_buckets(histogram)))


def _pages(stats: Stats) -> Iterator[Metric]:
    groups = [
        ({"model": model.name, "group": str(number)}, group)
        for model in stats.models
        for number, group in enumerate(model.cache.groups)
    ]
    states: list[tuple[Labels, Number]] = []
    for labels, group in groups:
        counts = {"context": group.contexts, "shared": group.both, "prefix": group.tree, "free": group.free}
        states += [({**labels, "state": state}, count) for state, count in counts.items()]
    used = [(labels, 1.0 - (group.free + group.tree) / group.pages) for labels, group in groups]
    yield _many("llamay_kv_pages", "gauge", "KV pages by who owns them.", states)
    for name in ("llamay_kv_usage_ratio", "vllm:kv_cache_usage_perc"):
        yield _many(name, "gauge", "Share of the KV pages that contexts own, 0 to 1.", used)


def _models(stats: Stats, site: Site) -> Iterator[Metric]:
    steps = sum(model.times.steps for model in stats.models)
    generated = sum(model.times.generated for model in stats.models)
    parts: list[tuple[Labels, Number]] = [
        ({"model": model.name, "part": part}, getattr(model.times, part))
        for model in stats.models
        for part in ("schedule", "encode", "device", "sample", "send")
    ]
    yield _many("llamay_step_seconds_total", "counter", "Seconds by part of a step, since the model was loaded.", parts)
    for name in ("llamay_steps_total", "llamacpp:n_decode_total"):
        yield _one(name, "counter", "Steps of the loaded models.", steps)
    busy = generated / steps if steps else 0.0
    yield _one("llamacpp:n_busy_slots_per_decode", "gauge", "Tokens a step.", busy)
    loaded: list[tuple[Labels, Number]] = [({"model": model.name, "device": model.device}, 1) for model in stats.models]
    yield _many("llamay_model_loaded", "gauge", "Models that are loaded.", loaded)
    yield _one("llamay_models_lost", "gauge", "Models whose device was lost.", len(stats.lost))
    yield _one("llamay_connections_busy", "gauge", "Requests whose reply is not over.", site.visiting)
    yield _many("llamay_build_info", "gauge", "The version.", [({"version": __version__}, 1)])


def _one(name: str, kind: str, help: str, value: Number) -> Metric:
    return Metric(name, kind, help, (("", {}, value),))


def _many(name: str, kind: str, help: str, samples: Iterable[tuple[Labels, Number]]) -> Metric:
    return Metric(name, kind, help, tuple([("", labels, value) for labels, value in samples]))


def _buckets(histogram: Histogram) -> Iterator[tuple[str, Labels, Number]]:
    for edge, count in histogram.cumulated():
        yield "_bucket", {"le": edge}, count
    yield "_sum", {}, histogram.sum
    yield "_count", {}, sum(histogram.counts)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

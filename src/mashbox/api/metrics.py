"""GET /metrics: what the server does, in the Prometheus text format.

After the prefix, names are vLLM's where it has the quantity, so that dashboards made for it fit.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from starlette.requests import Request
from starlette.responses import Response

from mashbox.api.metric_families import MetricFamilies
from mashbox.api.request_counts import RequestCounts
from mashbox.api.settings import ServeConfig
from mashbox.engine.client import EngineClient, EngineStatus


class Metrics:
    """The route's handler, and the registry's one collector."""

    def __init__(self, engine: EngineClient, config: ServeConfig, counts: RequestCounts) -> None:
        self._engine = engine
        self._config = config
        self._counts = counts
        self._families = MetricFamilies(config.model_id)
        self._registry = CollectorRegistry()
        self._registry.register(self)

    async def handle(self, request: Request) -> Response:
        """Every metric as it is now; also while the model loads."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    def collect(self) -> Iterator[Metric]:
        """All metric families."""
        status = self._engine.status
        yield from self._load(status)
        yield from self._prompt_cache(status)
        yield from self._requests()
        yield from self._times()

    def _load(self, status: EngineStatus) -> Iterator[Metric]:
        make, config = self._families, self._config
        context = status.facts.context if status.facts else config.context
        slots = status.facts.slots if status.facts else config.slots
        yield make.gauge("num_requests_running", "Requests that are being answered.", status.running)
        yield make.gauge("num_requests_waiting", "Requests that wait for a slot.", status.waiting)
        yield make.gauge(
            "kv_cache_usage_perc",
            "Part of the slots' room for tokens that the requests in them fill. 1 is all of it.",
            status.kv_tokens / (context * slots),
        )
        yield make.gauge(
            "cache_config_info",
            "Layout of the slots, always 1. A block is a slot: block_size is its context in tokens, "
            "num_blocks the number of slots, as is num_gpu_blocks, wherever the slots are.",
            1,
            block_size=str(context),
            num_blocks=str(slots),
            num_gpu_blocks=str(slots),
        )
        yield make.counter("num_preemptions", "Requests that lost their slot to another: never.", 0)
        yield make.counter(
            "worker_restarts", "Times the model's process was started again.", status.worker_restarts
        )
        yield make.counter(
            "compiles_after_ready",
            "Programs compiled after the server was ready: never, with this engine.",
            0,
        )

    def _prompt_cache(self, status: EngineStatus) -> Iterator[Metric]:
        make, counts, cache = self._families, self._counts, status.cache
        yield make.counter(
            "prefix_cache_queries", "Prompt tokens looked up in the prompt cache.", counts.prompt_tokens
        )
        yield make.counter(
            "prefix_cache_hits", "Prompt tokens found there and not computed again.", counts.cached_tokens
        )
        yield make.gauge("host_cache_bytes", "Bytes of saved prompt states in host memory.", cache.host_bytes)
        yield make.gauge(
            "host_cache_cap_bytes",
            "Most bytes the prompt cache takes in host memory. 0 is off.",
            self._config.cache_ram_mib << 20,
        )
        yield make.gauge("host_cache_states", "Saved prompt states in host memory.", cache.states)
        yield make.gauge(
            "snapshot_bytes",
            "Bytes of the slots' snapshots that host_cache_bytes does not count.",
            cache.snapshot_bytes,
        )
        yield make.counter(
            "host_cache_evictions", "Saved states removed to stay under the cap.", cache.evictions
        )
        yield make.counter(
            "host_cache_dropped", "Saved states that failed a check and were computed again.", cache.dropped
        )

    def _requests(self) -> Iterator[Metric]:
        make, counts = self._families, self._counts
        yield make.counter(
            "prompt_tokens",
            "Prompt tokens of requests that got a slot, cached ones too.",
            counts.prompt_tokens,
        )
        yield make.counter("generation_tokens", "New tokens of complete answers.", counts.generated_tokens)
        yield make.counters(
            "request_success",
            "Requests by how they ended: stop (by itself or a stop string), length (max_tokens or the "
            "context's end), abort (the client left), error (the engine failed). Refused ones are not here.",
            "finished_reason",
            counts.ended,
        )
        yield make.counters(
            "error_answers",
            "Requests answered with an error instead of an answer, by HTTP status. 499: the client had left.",
            "status",
            counts.error_answers,
        )
        for name, text, lengths in (
            ("request_prompt_tokens", "Prompt tokens of a complete answer.", counts.prompt_length),
            ("request_generation_tokens", "New tokens of a complete answer.", counts.answer_length),
            (
                "request_max_num_generation_tokens",
                "New tokens of a request's longest answer: it has one only.",
                counts.answer_length,
            ),
        ):
            yield make.histogram(name, text, lengths)

    def _times(self) -> Iterator[Metric]:
        counts = self._counts
        for name, text, seconds in (
            ("time_to_first_token", "from a request's arrival to its first text", counts.first_text_s),
            ("e2e_request_latency", "from a request's arrival to its end", counts.whole_s),
            ("request_queue_time", "a request waited for a slot", counts.queue_s),
            ("request_prefill_time", "from getting a slot to the first new token", counts.prefill_s),
            ("request_decode_time", "from the first to the last new token", counts.decode_s),
            ("request_inference_time", "from getting a slot to the last new token", counts.run_s),
            ("request_time_per_output_token", "per new token after the first, by request", counts.token_s),
            (
                "inter_token_latency",
                "between two new tokens, by token: each counts with its request's mean",
                counts.gap_s,
            ),
        ):
            yield self._families.histogram(f"{name}_seconds", f"Seconds {text}.", seconds)

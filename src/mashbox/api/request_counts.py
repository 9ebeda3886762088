"""What became of all requests since the server's start, in numbers. No request's content, user or id."""

from __future__ import annotations

from mashbox.api.distribution import TOKENS, Distribution
from mashbox.engine.types import FinishReason, Usage
from mashbox.http.record import RequestRecord

FINISHED = {FinishReason.STOP: "stop", FinishReason.STOP_STRING: "stop", FinishReason.LENGTH: "length"}
ABORT = "abort"
ERROR = "error"
STATUSES = (400, 404, 405, 408, 413, 414, 415, 429, 431, 499, 500, 503, 529)
"""The error statuses this server has; each is shown from the start, since a rate needs a zero before."""


class RequestCounts:
    """The engine's observer. Numbers only rise; distributions are of requests that ended well."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generated_tokens = 0
        self.ended = dict.fromkeys([*FINISHED.values(), ABORT, ERROR], 0)
        self.error_answers = dict.fromkeys(STATUSES, 0)
        self.first_text_s = Distribution()
        self.whole_s = Distribution()
        self.queue_s = Distribution()
        self.prefill_s = Distribution()
        self.decode_s = Distribution()
        self.run_s = Distribution()
        self.token_s = Distribution()
        self.gap_s = Distribution()
        self.prompt_length = Distribution(TOKENS)
        self.answer_length = Distribution(TOKENS)

    def started(self, prompt_tokens: int, cached_tokens: int) -> None:
        """A request has a slot."""
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += cached_tokens

    def first_text(self, seconds: float) -> None:
        """The first text of an answer has come."""
        self.first_text_s.observe(seconds)

    def finished(self, reason: FinishReason, usage: Usage, seconds: float) -> None:
        """A request ended well."""
        self.ended[FINISHED[reason]] += 1
        self.generated_tokens += usage.completion_tokens
        self.whole_s.observe(seconds)
        self.queue_s.observe(usage.queue_ms / 1000)
        self.prefill_s.observe(usage.prompt_ms / 1000)
        self.decode_s.observe(usage.predicted_ms / 1000)
        self.run_s.observe((usage.prompt_ms + usage.predicted_ms) / 1000)
        self.prompt_length.observe(usage.prompt_tokens)
        self.answer_length.observe(usage.completion_tokens)
        if (gaps := usage.completion_tokens - 1) > 0:
            mean = usage.predicted_ms / 1000 / gaps
            self.token_s.observe(mean)
            self.gap_s.observe(mean, gaps)

    def given_up(self) -> None:
        """A client went away."""
        self.ended[ABORT] += 1

    def failed(self) -> None:
        """The engine failed a request."""
        self.ended[ERROR] += 1

    def answered(self, record: RequestRecord) -> None:
        """An HTTP request is over, whatever became of it."""
        if record.status >= 400:
            self.error_answers[record.status] = self.error_answers.get(record.status, 0) + 1

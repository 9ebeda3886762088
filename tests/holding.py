"""A real model that stops in the middle of a long prompt: a backend for `WorkerConfig.backend`.

While the file that MASHBOX_TEST_HOLD names is there, prefill calls from position 512 on wait for its end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from mashbox.engine.backend import Logits
from mashbox.engine.llama import LlamaBackend

HELD_FROM = 512
VARIABLE = "MASHBOX_TEST_HOLD"


class Holding(LlamaBackend):
    """See the module."""

    def prefill(self, slot: int, start: int, tokens: Sequence[int], want_logits: bool) -> Logits | None:
        while start >= HELD_FROM and Path(os.environ[VARIABLE]).exists():
            time.sleep(0.01)
        return super().prefill(slot, start, tokens, want_logits)

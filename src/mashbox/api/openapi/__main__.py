"""`python -m mashbox.api.openapi`: writes the document of a server with a stand-in for its model's id."""

from __future__ import annotations

import json
import sys

from mashbox.api.openapi.document import describe
from mashbox.engine.types import Sampling

MODEL_ID = "qwen3-8-27b"
"""The id in the document that is kept in the repository."""


def text() -> str:
    """The document as it is kept."""
    return json.dumps(describe(MODEL_ID, Sampling()), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())

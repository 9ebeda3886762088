"""Ids of answers, their items and their calls."""

from __future__ import annotations

import uuid


def new_id(prefix: str) -> str:
    """`prefix` and 32 hex digits."""
    return prefix + uuid.uuid4().hex

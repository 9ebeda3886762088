"""What all downloads share about HTTP: time limits, and plain words for what went wrong."""

from __future__ import annotations

import re

import httpx2

TIMEOUT = httpx2.Timeout(30.0, connect=10.0)
"""Seconds without any byte before a source counts as silent."""

_STATUS_WORDS = {
    401: "a valid access token is needed",
    403: "access is not allowed",
    404: "it is not there",
    429: "too many requests, try again later",
}


def reason(error: Exception) -> str:
    """Why a connection failed, without the error number."""
    if isinstance(error, httpx2.TimeoutException):
        return "no answer in time"
    return re.sub(r"^\[Errno -?\d+\] ", "", str(error)) or type(error).__name__


def status_text(status: int) -> str:
    """A refusing HTTP status in plain words."""
    return f"{_STATUS_WORDS.get(status, 'an error of the server')} (HTTP {status})"

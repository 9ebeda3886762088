"""The user's pip configuration, as far as it says how to reach a package index."""

from __future__ import annotations

import ast
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx2

from mashbox.catalog.transport import TIMEOUT
from mashbox.config import child_environment

DEFAULT_INDEX = "https://pypi.org/simple"

_SECTIONS = (":env:", "download", "install", "global")


@dataclass(frozen=True, slots=True)
class PipSettings:
    """Index addresses in order, the CA bundle and the proxy, where they are set."""

    indexes: tuple[str, ...] = (DEFAULT_INDEX,)
    cert: str | None = None
    proxy: str | None = None

    def client(self) -> httpx2.Client:
        """An HTTP client that trusts what pip trusts; the environment's proxies count too."""
        verify = ssl.create_default_context(cafile=self.cert) if self.cert else True
        return httpx2.Client(verify=verify, proxy=self.proxy, timeout=TIMEOUT, follow_redirects=True)


def read_pip_settings() -> PipSettings:
    """Ask pip for its configuration (files and environment); without pip the environment alone counts."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    try:
        listed = subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=False, env=child_environment()
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        listed = ""
    return parse_pip_settings(listed, os.environ)


def parse_pip_settings(listed: str, environ: Mapping[str, str]) -> PipSettings:
    """Settings from what `pip config list` printed and the environment, which comes first."""
    pairs = {
        key: str(ast.literal_eval(value)) for key, value in re.findall(r"(?m)^(\S+?)=(['\"].*['\"])$", listed)
    }

    def value(name: str) -> str | None:
        if found := environ.get("PIP_" + name.upper().replace("-", "_")):
            return found
        return next((pairs[key] for section in _SECTIONS if (key := f"{section}.{name}") in pairs), None)

    urls = [value("index-url") or DEFAULT_INDEX, *(value("extra-index-url") or "").split()]
    cert = value("cert") or environ.get("REQUESTS_CA_BUNDLE") or environ.get("CURL_CA_BUNDLE")
    return PipSettings(
        # An index on the local disk (file:) is not read; the next one may have the wheel.
        indexes=tuple(url.rstrip("/") for url in urls if url.startswith(("http://", "https://"))),
        cert=cert if cert and Path(cert).is_file() else None,
        proxy=value("proxy"),
    )

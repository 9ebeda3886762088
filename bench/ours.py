"""Our side: `python -m mashbox run`."""

from __future__ import annotations

import http.client
import json
import sys
import time
from enum import Enum
from pathlib import Path
from typing import Any

from bench.config import Setup
from bench.errors import BenchError
from bench.process import HOST, Launch, free_port

WEIGHTS_S = 300.0
"""How long the server may read its weights to know which they are."""


class Exact(Enum):
    """Exact mode with what a certificate allows, or as careful as it is without one."""

    CERTIFIED = "certified"
    UNCERTIFIED = "uncertified"

    @property
    def certification(self) -> str:
        """What such a server's health says."""
        return "passed" if self is Exact.CERTIFIED else "none"


def launch(setup: Setup, logs: Path, exact: Exact | None = None) -> Launch:
    """How to start our server; options not named here keep their defaults."""
    port = free_port()
    command = [sys.executable, "-m", "mashbox", "run", str(setup.model), "--port", str(port)]
    command += ["--ctx", str(setup.context), "--slots", str(setup.slots), "--threads", str(setup.threads)]
    if setup.cache_ram is not None:
        command += ["--cache-ram", str(setup.cache_ram)]
    if setup.chat_template is not None:
        command += ["--chat-template", str(setup.chat_template)]
    if exact is None:
        return Launch("ours", command, port, logs / "ours.log", {}, must_reuse=True)
    name = f"ours-{exact.value}"
    # Certificates are kept in the cache directory, so an empty one has none.
    env = {"MASHBOX_CACHE": str(logs.resolve() / name)} if exact is Exact.UNCERTIFIED else {}
    return Launch(name, [*command, "--exact"], port, logs / f"{name}.log", env, must_reuse=True)


def check_exact(port: int, exact: Exact) -> None:
    """Raise BenchError unless the server says of its certification what it should."""
    deadline = time.monotonic() + WEIGHTS_S
    # Which certificate holds is known once the weights have been read through.
    while (health := _health(port))["component_set_sha"] is None:
        if time.monotonic() > deadline:
            raise BenchError(f"The server does not know its weights after {WEIGHTS_S:.0f} s.")
        time.sleep(0.1)
    if health["certification"] != exact.certification:
        raise BenchError(
            f"The server's certification is {health['certification']!r}, not {exact.certification!r}; a "
            "certificate comes from `mashbox certify MODEL` with the settings of the command line above."
        )


def _health(port: int) -> dict[str, Any]:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/health")
        health: dict[str, Any] = json.loads(connection.getresponse().read())
        return health
    finally:
        connection.close()

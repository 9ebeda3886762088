"""schemathesis against a live server's own document: `python -m tests.api.fuzz --help`.

It makes requests that fit the document and requests that break it in one place, and checks each answer: no
500, no silence, a described status, media type, headers and body, no good request refused, no bad one taken.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.api.conftest import run_server

CONFIG = """
max-stream-events = 1000000
warnings = false

[checks.positive_data_acceptance]
enabled = false
"""
"""Whole streams are read. Of good requests, `fuzz_hooks` says which may be refused."""
ROOT = Path(__file__).parents[2]


def fuzz(
    url: str, folder: Path, *, examples: int, seed: int, capture: bool
) -> subprocess.CompletedProcess[str]:
    """Run it in a folder that is empty, with at most `examples` random requests a route."""
    config = folder / "schemathesis.toml"
    config.write_text(CONFIG)
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(config), "run"),
        *(f"{url}/openapi.json", "--seed", str(seed), "--max-examples", str(examples)),
        *("--request-timeout", "10", "--continue-on-failure", "--no-color"),
    ]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "SCHEMATHESIS_HOOKS": "tests.api.fuzz_hooks",
        "PYTHONPATH": os.pathsep.join(paths),
    }
    return subprocess.run(
        command, cwd=folder, env=environment, text=True, check=False, capture_output=capture
    )


def main() -> int:
    """Start a server, run it for long, and tell whether all was well."""
    parser = argparse.ArgumentParser(
        prog="make fuzz", description="Random requests to a server without a model."
    )
    parser.add_argument("--examples", type=int, default=1000, help="most random requests a route (1000)")
    parser.add_argument("--seed", type=int, default=1, help="another seed makes other requests (1)")
    options = parser.parse_args()
    with run_server("scripted.gguf") as server, tempfile.TemporaryDirectory() as folder:
        server.until(lambda report: report["status"] == "ok", 20)
        url = f"http://127.0.0.1:{server.port}"
        result = fuzz(url, Path(folder), examples=options.examples, seed=options.seed, capture=False)
        server.until(lambda report: report["live_rows"] == 0 and report["waiting"] == 0)
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())

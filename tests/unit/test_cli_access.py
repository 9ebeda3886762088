"""`mashbox run`: a server that others could reach without a key never starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SECRET = "s3cret"


def refusal(*options: str, key: str | None = None) -> str:
    """The one line that says why the command failed. There is no such model: nothing gets so far."""
    environment = {name: value for name, value in os.environ.items() if name != "MASHBOX_API_KEY"}
    if key is not None:
        environment["MASHBOX_API_KEY"] = key
    command = [sys.executable, "-m", "mashbox", "run", "no-such-model", "--port", "0", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("mashbox: ")
    assert SECRET not in line
    return line


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "box.example.com"])
@pytest.mark.parametrize("key", [None, ""])
def test_without_a_key_it_is_for_this_machine_only(host: str, key: str | None) -> None:
    line = refusal("--host", host, key=key)
    assert f"--host {host} " in line
    assert "MASHBOX_API_KEY" in line
    assert "--api-key-file" in line


@pytest.mark.parametrize(
    ("content", "mode", "told"),
    [
        (f"{SECRET} red", 0o644, "run: chmod 600 "),
        (f"{SECRET} red green", 0o600, "line 1"),
        ("# nothing", 0o600, "has no key"),
    ],
)
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_bad_key_file(tmp_path: Path, host: str, content: str, mode: int, told: str) -> None:
    file = tmp_path / "keys"
    file.write_text(content)
    file.chmod(mode)
    assert told in refusal("--host", host, "--api-key-file", str(file), key="other")


def test_other_options_that_make_no_sense(tmp_path: Path) -> None:
    assert "No such file" in refusal("--api-key-file", str(tmp_path / "none"))
    assert "MASHBOX_API_KEY" in refusal(key=f"{SECRET} {SECRET}")
    assert "--allow-host" in refusal("--allow-host", "http://box")
    assert "needs keys" in refusal("--allow-origin", "*")


def test_with_a_key_it_goes_on(tmp_path: Path) -> None:
    assert "no-such-model" in refusal("--host", "0.0.0.0", key=SECRET)
    assert "no-such-model" in refusal("--allow-origin", "*", "--allow-host", ".example.com", key=SECRET)

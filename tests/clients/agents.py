"""Runs the real coding agents, each in a home and a folder of its own, with no way to the internet."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.clients.script import call

BIN = Path(__file__).parent / "npm" / "node_modules" / ".bin"
MODEL_ID = "smollm2-135m"
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Run:
    """What a finished command said."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Desk:
    """Where one client works: its home, its folder, and the server's address without /v1."""

    home: Path
    folder: Path
    url: str

    def environment(self, **more: str) -> dict[str, str]:
        """Only what a client needs. Everything but loopback goes to a proxy that is not there."""
        nowhere = "http://127.0.0.1:9"
        return {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "TERM": "dumb",
            "LANG": "C.UTF-8",
            "HTTP_PROXY": nowhere,
            "HTTPS_PROXY": nowhere,
            "NO_PROXY": "127.0.0.1,localhost",
            **more,
        }

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> Run:
        """Run to the end, with nothing on its standard input; too slow fails the test."""
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            _end_group(process.pid)
            out, err = process.communicate()
            raise AssertionError(
                f"{command[0]} took over {TIMEOUT_S} s: {out[-2000:]} {err[-2000:]}"
            ) from None
        finally:
            _end_group(process.pid)
        return Run(process.returncode, out, err)


def _end_group(pid: int) -> None:
    """End what a command has left behind."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def claude_code(desk: Desk, prompt: str, *options: str) -> Run:
    """One headless turn of Claude Code, allowed to use its file and shell tools."""
    environment = desk.environment(
        ANTHROPIC_BASE_URL=desk.url,
        ANTHROPIC_API_KEY="any",
        ANTHROPIC_MODEL=MODEL_ID,
        CLAUDE_CODE_MAX_CONTEXT_TOKENS="65536",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_AUTOUPDATER="1",
        IS_SANDBOX="1",
    )
    allowed = ("--allowedTools", "Bash,Edit,Write,Read")
    return desk.run(["claude", "-p", prompt, *allowed, *options], environment)


CODEX_CONFIG = """\
model = "{model}"
model_provider = "mashbox"
[model_providers.mashbox]
name = "mashbox"
base_url = "{url}/v1"
env_key = "MASHBOX_KEY"
wire_api = "responses"
[analytics]
enabled = false
"""


def codex(desk: Desk, prompt: str, *command: str) -> Run:
    """One headless turn of Codex, allowed everything; `command` is `exec` unless told otherwise."""
    folder = desk.home / ".codex"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(CODEX_CONFIG.format(model=MODEL_ID, url=desk.url))
    options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    environment = desk.environment(MASHBOX_KEY="any", CODEX_HOME=str(folder))
    return desk.run(["codex", *(command or ("exec",)), *options, prompt], environment)


PI_PATHS = {"openai-completions": "/v1", "openai-responses": "/v1", "anthropic-messages": ""}
"""What Pi wants after the server's address in each of its modes."""


def pi(
    desk: Desk, prompt: str, *options: str, api: str = "openai-completions", max_tokens: int = 8192
) -> Run:
    """One headless turn of Pi in one of its modes."""
    folder = desk.home / ".pi" / "agent"
    folder.mkdir(parents=True, exist_ok=True)
    model = {"id": MODEL_ID, "contextWindow": 65536, "maxTokens": max_tokens, "reasoning": True}
    provider = {
        "baseUrl": desk.url + PI_PATHS[api],
        "api": api,
        "apiKey": "any",
        "models": [model],
    }
    (folder / "models.json").write_text(json.dumps({"providers": {"mashbox": provider}}))
    command = ["pi", "--offline", "--model", f"mashbox/{MODEL_ID}:medium", *options, "-p", prompt]
    return desk.run(command, desk.environment(PI_OFFLINE="1"))


@dataclass(frozen=True)
class Client:
    """What the tests need to know of a client: how it is run, and what calls of its tools look like."""

    name: str
    route: str
    run: Callable[[Desk, str], Run]
    carry_on: Callable[[Desk, str], Run]
    """Runs a second turn of the conversation that `run` began."""
    shell: Callable[[str], str]
    """A call that runs a command."""
    write: Callable[[Path, str], str]
    """A call that writes a file."""
    edit: Callable[[Path, str, str], str]
    """A call that replaces text in a file that was written before."""
    run_telling: Callable[[Desk, str], Run]
    """As `run`, but so that it tells every error."""
    too_long: str
    """A pattern: what it tells its user when the prompt does not fit a context of 256 tokens."""


def _codex_write(path: Path, text: str) -> str:
    return call("exec_command", cmd=f"printf %s {shlex.quote(text)} > {shlex.quote(str(path))}")


def _codex_edit(path: Path, old: str, new: str) -> str:
    """As a patch of one line: Codex reads `apply_patch` out of the command."""
    patch = f"*** Begin Patch\n*** Update File: {path}\n@@\n-{old}\n+{new}\n*** End Patch"
    return call("exec_command", cmd=f"apply_patch <<'END'\n{patch}\nEND\n")


def _pi_client(name: str, route: str, api: str, too_long: str) -> Client:
    return Client(
        name=name,
        route=route,
        run=partial(pi, api=api),
        carry_on=lambda desk, prompt: pi(desk, prompt, "--continue", api=api),
        shell=lambda command: call("bash", command=command),
        write=lambda path, text: call("write", path=str(path), content=text),
        edit=lambda path, old, new: call("edit", path=str(path), edits=[{"oldText": old, "newText": new}]),
        run_telling=lambda desk, prompt: pi(desk, prompt, "--mode", "json", api=api),
        too_long=too_long,
    )


CLAUDE_CODE = Client(
    name="claude-code",
    route="/v1/messages",
    run=claude_code,
    carry_on=lambda desk, prompt: claude_code(desk, prompt, "--continue"),
    shell=lambda command: call("Bash", command=command),
    write=lambda path, text: call("Write", file_path=str(path), content=text),
    edit=lambda path, old, new: call("Edit", file_path=str(path), old_string=old, new_string=new),
    run_telling=claude_code,
    too_long=r"Prompt is too long .* ~\d+ tokens \(limit 255\)",
)
CODEX = Client(
    name="codex",
    route="/v1/responses",
    run=codex,
    carry_on=lambda desk, prompt: codex(desk, prompt, "exec", "resume", "--last"),
    shell=lambda command: call("exec_command", cmd=command),
    write=_codex_write,
    edit=_codex_edit,
    run_telling=codex,
    too_long="ran out of room in the model's context window",
)
TOO_LONG = r"maximum context length is 256 tokens.* your prompt has \d+ tokens"
PI_CHAT = _pi_client("pi-chat", "/v1/chat/completions", "openai-completions", TOO_LONG)
PI_RESPONSES = _pi_client("pi-responses", "/v1/responses", "openai-responses", TOO_LONG)
PI_MESSAGES = _pi_client(
    "pi-messages", "/v1/messages", "anthropic-messages", r"prompt is too long: \d+ tokens > 255 maximum"
)
AGENTS = (CLAUDE_CODE, CODEX, PI_CHAT)
CLIENTS = (CLAUDE_CODE, CODEX, PI_CHAT, PI_RESPONSES, PI_MESSAGES)

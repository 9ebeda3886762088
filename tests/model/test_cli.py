"""The command line as a user meets it: what works, and one plain line for what does not."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.model.conftest import Box, run_box


def mashbox(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "mashbox", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | environment,
    )


def refusal(*arguments: str, **environment: str) -> str:
    """The one line that says why a command failed."""
    done = mashbox(*arguments, **environment)
    assert done.returncode != 0
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("mashbox: ")
    return lines[0]


def test_help_names_every_option() -> None:
    help_text = mashbox("run", "--help", COLUMNS="200", TERM="dumb").stdout
    options = (
        "host port ctx slots cache-ram threads gpu-layers cache-type-k cache-type-v flash-attn rope-scaling "
        "chat-template alias exact model-sampling log-level log-json log-prompts api-key-file allow-host"
        " allow-origin"
    )
    for option in options.split():
        assert f"--{option}" in help_text


def test_help_fits_a_narrow_terminal() -> None:
    help_text = mashbox("run", "--help", COLUMNS="80", TERM="dumb").stdout
    for whole in ("[default: 127.0.0.1]", "[default: f16]", "<auto|on|off>", " LEVEL ", "linear:F"):
        assert whole in help_text


def test_the_version_is_told() -> None:
    assert re.fullmatch(r"mashbox \d+\.\d+\.\d+\n", mashbox("--version").stdout)


def test_prompts_cannot_be_logged_where_their_level_is_left_out() -> None:
    assert "--log-level warning" in refusal("run", "m", "--log-prompts", "--log-level", "warning")


def test_list_shows_the_models() -> None:
    listed = mashbox("list", COLUMNS="200").stdout
    assert "smollm2-135m" in listed
    assert "gemma3-270m" in listed


def test_pull_prints_where_the_model_is(demo_file: Path) -> None:
    assert mashbox("pull", "smollm2-135m").stdout.strip() == str(demo_file)


def test_a_missing_file_is_refused() -> None:
    assert "nothing.gguf does not exist" in refusal("run", "/tmp/nothing.gguf", "--port", "0")


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "text.gguf"
    file.write_text("Dear diary, " * 100)
    assert "not a GGUF" in refusal("run", str(file), "--port", "0")


def test_a_file_cut_short_is_refused(demo_file: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.gguf"
    shutil.copy(demo_file, short)
    os.truncate(short, demo_file.stat().st_size // 2)
    assert "cut short" in refusal("run", str(short), "--port", "0")


def test_what_does_not_fit_is_refused_with_an_estimate(demo_file: Path) -> None:
    line = refusal("run", str(demo_file), "--port", "0", "--ctx", "1000000", "--slots", "64")
    assert "64 x 1000000" in line
    assert "--ctx" in line


def test_an_unknown_name_is_refused_with_near_ones() -> None:
    assert "smollm2-135m" in refusal("run", "smollm2-135", "--port", "0")


def test_a_port_in_use_is_refused(demo_file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"port {port}" in refusal("run", str(demo_file), "--port", port)


def test_other_machines_need_a_key(demo_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASHBOX_API_KEY", raising=False)
    assert "API key" in refusal("run", str(demo_file), "--host", "0.0.0.0", "--port", "0")
    key = "s3cret"
    monkeypatch.setenv("MASHBOX_API_KEY", key)
    with run_box(str(demo_file), "--host", "0.0.0.0", "--ctx", "256", "--slots", "1") as box:
        os.kill(box.process.pid, signal.SIGHUP)  # there is no file to read again: nothing happens
        assert box.http.get("/v1/models").status_code == 401
        assert box.http.get("/v1/models", headers={"x-api-key": key}).status_code == 200
        worker = box.health()["worker_pid"]
        assert key not in Path(f"/proc/{worker}/environ").read_text()
        assert box.process.stdout is not None
        text = "".join(iter(box.process.stdout.readline, "  Stop            Ctrl-C\n"))
        assert "Bearer $MASHBOX_API_KEY" in text
        assert key not in text


@pytest.mark.parametrize(
    ("source", "reason"),
    [("{% for %}", "line 1"), ("", "empty")],
)
def test_a_bad_template_file_is_refused(demo_file: Path, tmp_path: Path, source: str, reason: str) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text(source)
    assert reason in refusal("run", str(demo_file), "--port", "0", "--chat-template", str(template))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(
            ("--rope-scaling", "stretch"),
            ("--gpu-layers", "some"),
            ("--cache-type-k", "q9"),
            ("--slots", "0"),
        ),
        ("--tool-format", "nope"),
    ],
)
def test_a_bad_option_value_names_the_option(demo_file: Path, option: str, value: str) -> None:
    done = mashbox("run", str(demo_file), "--port", "0", option, value, COLUMNS="200", TERM="dumb")
    assert done.returncode == 2
    assert option in done.stderr


def test_options_reach_the_model(demo_file: Path, tmp_path: Path) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text("{{ messages[-1].content }}")
    options = ["--alias", "team/demo", "--ctx", "512", "--slots", "3", "--threads", "1"]
    cache = ["--cache-type-k", "q8_0", "--cache-type-v", "q8_0", "--flash-attn", "on"]
    cache += ["--cache-ram", "64"]
    with run_box(
        str(demo_file), *options, *cache, "--rope-scaling", "yarn:2", "--chat-template", str(template)
    ) as box:
        card = box.http.get("/v1/models/team/demo").json()
        assert (card["id"], card["max_model_len"], card["slots"]) == ("team/demo", 512, 3)
        assert card["weights"] == demo_file.name
        assert card["cache_ram_mib"] == 64
        chat = {"messages": [{"role": "user", "content": "one two three"}], "max_tokens": 1}
        answer = box.http.post("/v1/chat/completions", json=chat).json()
        assert (
            answer["usage"]["prompt_tokens"]
            == box.complete("one two three", max_tokens=1)["usage"]["prompt_tokens"]
        )


def test_memory_for_saved_states_is_chosen_from_what_is_free(box: Box) -> None:
    (card,) = box.http.get("/v1/models").json()["data"]
    assert 256 <= card["cache_ram_mib"] <= 8192
    assert box.health()["host_cache_cap_bytes"] == card["cache_ram_mib"] << 20


def test_model_sampling_draws_and_greedy_does_not(demo_file: Path) -> None:
    with run_box("smollm2-135m", "--ctx", "512", "--slots", "2", "--model-sampling") as box:
        texts = {
            box.complete("A good name for a cat is", max_tokens=12)["choices"][0]["text"] for _ in range(6)
        }
        assert len(texts) > 1
        greedy = {
            box.complete("A good name for a cat is", max_tokens=12, temperature=0)["choices"][0]["text"]
            for _ in range(3)
        }
        assert len(greedy) == 1


def test_an_assertion_of_the_library_is_told_without_a_debugger(demo_file: Path, tmp_path: Path) -> None:
    content = bytearray(demo_file.read_bytes())
    key = b"llama.block_count"
    value = content.index(key) + len(key) + 4
    content[value : value + 4] = bytes(4)
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(content)
    told = mashbox("run", str(damaged), "--port", "0", "--ctx", "512", "--slots", "1").stderr
    assert told.rstrip().endswith("mashbox: The worker ended while it loaded the model (signal 6).")
    assert len(told.splitlines()) < 5, told


def test_a_model_id_that_cannot_be_sent_is_refused(demo_file: Path) -> None:
    line = refusal("run", str(demo_file), "--port", "0", "--alias", "a\udcff")
    assert "'a\\udcff'" in line
    assert "--alias" in line


def test_the_debug_log_names_each_answer(demo_file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    messages = [{"role": "user", "content": "Name three planets."}]
    with run_box(str(demo_file), "--ctx", "512", "--slots", "1", "--log-level", "debug") as box:
        answers = [
            box.http.post(f"/v1/{route}", json=body | {"max_tokens": 1}).json()
            for route, body in (
                ("chat/completions", {"messages": messages}),
                ("completions", {"prompt": "Three planets are"}),
                ("messages", {"messages": messages}),
                ("responses", {"input": "Name three planets.", "max_output_tokens": 1}),
            )
        ]
    log = capfd.readouterr().err
    for answer in answers:
        assert f" {re.split('[-_]', answer['id'])[1]}: 0 of " in log
        assert log.count(f"  {answer['id']}  req_") == 1
    assert len(log.splitlines()) < 30


def test_the_librarys_lines_are_json_too(demo_file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with run_box(str(demo_file), "--ctx", "512", "--slots", "1", "--log-level", "trace", "--log-json"):
        pass
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert sum(line["logger"] == "mashbox.llama" and line["level"] == "trace" for line in lines) > 100

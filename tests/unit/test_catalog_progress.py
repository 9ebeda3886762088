from __future__ import annotations

import io

from rich.console import Console

from mashbox.catalog.progress import BarReporter, LineReporter, Reporter, reporter_for


def console(terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=100)


def written(to: Console) -> str:
    assert isinstance(to.file, io.StringIO)
    return to.file.getvalue()


def run(reporter: Reporter, done: int = 0) -> None:
    reporter.begin("model.gguf", 1000, done)
    for _ in range((1000 - done) // 100):
        reporter.advance(100)
    reporter.end()
    reporter.note("All [good].")


def test_plain_lines() -> None:
    output = console(terminal=False)
    run(reporter_for(output))
    assert written(output).splitlines() == [
        "Downloading model.gguf (1.0 kB)",
        "  25 % of 1.0 kB",
        "  50 % of 1.0 kB",
        "  75 % of 1.0 kB",
        "  100 % of 1.0 kB",
        "All [good].",
    ]


def test_plain_lines_of_a_continued_download() -> None:
    output = console(terminal=False)
    run(reporter_for(output), done=700)
    assert written(output).splitlines()[:2] == [
        "Continuing model.gguf (1.0 kB) after 700 bytes",
        "  75 % of 1.0 kB",
    ]


def test_unknown_size() -> None:
    output = console(terminal=False)
    reporter = LineReporter(output)
    reporter.begin("model.gguf", None, 0)
    reporter.advance(100)
    reporter.end()
    assert written(output) == "Downloading model.gguf\n"


def test_a_bar_on_a_terminal() -> None:
    output = console(terminal=True)
    reporter = reporter_for(output)
    assert isinstance(reporter, BarReporter)
    run(reporter)
    assert "model.gguf" in written(output)
    assert "1.0/1.0 kB" in written(output)
    assert "All [good]." in written(output)

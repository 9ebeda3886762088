"""A certificate counts for exactly what it was made for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from mashbox import certification
from mashbox.catalog.fingerprint import weights_sha256
from mashbox.certification import exact_model
from mashbox.config import ModelConfig
from mashbox.engine.certificate import Certificate, Check, Subject, find, path_of, standing, write

MODEL = ModelConfig("m", context=2048, slots=8, threads=2)
SUBJECT = Subject.of("build 1", "a" * 64, MODEL)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MASHBOX_CACHE", str(tmp_path))
    return tmp_path


def certificate(subject: Subject = SUBJECT, passed: bool = True, context: int = 2048) -> Certificate:
    return Certificate(
        subject=subject,
        model="m.gguf",
        made="2026-01-02T03:04:05+00:00",
        context=context,
        passed=passed,
        decode_rows=3,
        prefill_rows=256,
        checks=(Check("text comes back", "passed", "all 18"),),
    )


def test_what_is_written_is_found() -> None:
    write(certificate())
    assert find(SUBJECT, 8192) == certificate()
    assert standing(SUBJECT, 8192) == "passed"


def test_a_new_one_takes_the_place_of_an_old_one(cache: Path) -> None:
    write(certificate())
    write(certificate(passed=False))
    assert standing(SUBJECT, 8192) == "failed"
    assert len(list((cache / "certificates").iterdir())) == 1


@pytest.mark.parametrize(
    "other",
    [
        Subject.of("build 2", "a" * 64, MODEL),
        Subject.of("build 1", "b" * 64, MODEL),
        *(
            Subject.of("build 1", "a" * 64, replace(MODEL, **change))
            for change in (
                {"threads": 1},
                {"gpu_layers": 0},
                {"cache_type_k": "q8_0"},
                {"cache_type_v": "f32"},
                {"rope_scaling": "yarn:2"},
            )
        ),
        msgspec.structs.replace(SUBJECT, gate=SUBJECT.gate + 1),
    ],
)
def test_it_counts_for_nothing_else(other: Subject) -> None:
    path = write(certificate())
    assert standing(other, 8192) == "none"
    # Not even where the file has the other one's name.
    path.rename(path_of(other, 2048))
    assert standing(other, 8192) == "none"


@pytest.mark.parametrize(
    ("tried", "served", "expected"),
    [
        *((512, 512, "passed"), (512, 256, "passed"), (512, 513, "none")),
        *((2048, 2049, "passed"), (2048, 131072, "passed"), (2047, 131072, "none")),
    ],
)
def test_one_from_a_short_context_counts_for_no_longer_one(tried: int, served: int, expected: str) -> None:
    write(certificate(context=tried))
    assert standing(SUBJECT, served) == expected


def test_one_from_a_short_context_replaces_no_full_one() -> None:
    write(certificate(context=2048))
    write(certificate(context=512, passed=False))
    assert standing(SUBJECT, 8192) == standing(SUBJECT, 512) == "passed"


def test_what_does_not_change_the_arithmetic_does_not_matter() -> None:
    other = replace(MODEL, path="elsewhere", context=512, slots=1, cache_ram_mib=7, exact=True)
    assert Subject.of("build 1", "a" * 64, other) == SUBJECT


@pytest.mark.parametrize("content", [b"", b"{}", b"not json", b"\xff"])
def test_a_damaged_file_is_no_certificate(content: bytes) -> None:
    write(certificate()).write_bytes(content)
    assert standing(SUBJECT, 8192) == "none"


@pytest.mark.parametrize(
    ("passed", "build", "expected"),
    [
        (True, "build 1", (3, 256, True)),
        (False, "build 1", (1, 64, False)),
        (True, "build 2", (1, 64, False)),
        (True, None, (1, 64, False)),
    ],
)
def test_exact_mode_uses_what_a_passed_certificate_of_this_build_allows(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    passed: bool,
    build: str | None,
    expected: tuple[int, int, bool],
) -> None:
    weights = tmp_path / "m.gguf"
    weights.write_bytes(b"weights")
    monkeypatch.setattr(certification, "_read_build", lambda: build)
    write(certificate(Subject.of("build 1", weights_sha256([weights]) or "", MODEL), passed))
    exact, certified = exact_model(MODEL, [weights])
    assert (exact.decode_rows, exact.prefill_rows, certified) == expected
    assert (exact.exact, exact.flash_attn) == (True, "off")

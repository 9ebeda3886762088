from __future__ import annotations

import contextlib
import errno
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.catalog.gguf import KEPT_ARRAY, SkippedArray, read_model
from mashbox.catalog.memory import estimate
from mashbox.errors import ModelFileError
from tests.unit.catalog_support import F32, Q8_0, build_gguf, gguf_header, llama_metadata

TENSORS = [("token_embd.weight", (64, 10), Q8_0), ("norm.weight", (7,), F32)]


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("version", [2, 3])
def test_reads_metadata_and_weights(tmp_path: Path, version: int) -> None:
    metadata = {
        **llama_metadata(),
        "general.name": "Tiny",
        "a.flag": True,
        "a.float": 0.5,
        "a.list": [1, 2, 3],
        "a.words": ["x", "yz"],
        "tokenizer.ggml.tokens": [f"t{n}" for n in range(KEPT_ARRAY + 1)],
        "tokenizer.ggml.scores": [float(n) for n in range(KEPT_ARRAY + 1)],
        "z.after": "still aligned",
    }
    model = read_model([write(tmp_path / "m.gguf", build_gguf(metadata, TENSORS, version))])
    assert model.architecture == "llama"
    assert model.context_length == 4096
    assert model.vocab_size == KEPT_ARRAY + 1
    assert model.metadata["tokenizer.ggml.scores"] == SkippedArray(KEPT_ARRAY + 1)
    assert model.metadata["a.list"] == (1, 2, 3)
    assert model.metadata["a.words"] == ("x", "yz")
    assert model.metadata["a.flag"] is True
    assert model.metadata["a.float"] == 0.5
    assert model.metadata["z.after"] == "still aligned"
    assert model.weights_bytes == 640 // 32 * 34 + 24 + 28  # 680 bytes, rounded up to 704, then 7 floats


scalars = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(max_size=20)
)


@given(st.dictionaries(st.text(min_size=1, max_size=12), scalars, max_size=8))
def test_any_metadata_comes_back(
    tmp_path_factory: pytest.TempPathFactory, metadata: dict[str, object]
) -> None:
    path = write(tmp_path_factory.mktemp("gguf") / "m.gguf", build_gguf(metadata))
    assert read_model([path]).metadata == metadata


@given(st.data())
def test_any_cut_is_a_plain_error(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    metadata = {**llama_metadata(), "tokenizer.ggml.tokens": ["ab"] * (KEPT_ARRAY + 5)}
    whole = build_gguf(metadata, TENSORS)
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    write(path, whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(ModelFileError, match=str(path)):
        read_model([path])


@given(st.binary(max_size=200))
def test_any_garbage_is_a_plain_error(tmp_path_factory: pytest.TempPathFactory, garbage: bytes) -> None:
    path = write(tmp_path_factory.mktemp("gguf") / "m.gguf", b"GGUF\x03\0\0\0" + garbage + b"\xff" * 16)
    with contextlib.suppress(ModelFileError):
        assert read_model([path]).weights_bytes >= 0


def test_cut_in_the_weights_says_how_much(tmp_path: Path) -> None:
    whole = build_gguf(llama_metadata(), TENSORS)
    path = write(tmp_path / "m.gguf", whole[:-10])
    with pytest.raises(ModelFileError) as caught:
        read_model([path])
    assert str(caught.value) == f"{path} is cut short: expected {len(whole)} bytes, it has {len(whole) - 10}."


def test_cut_in_the_last_word_of_a_skipped_array(tmp_path: Path) -> None:
    head, _ = gguf_header({"tokenizer.ggml.tokens": ["a long word"] * (KEPT_ARRAY + 1)})
    with pytest.raises(ModelFileError, match="its header ends"):
        read_model([write(tmp_path / "m.gguf", head.rstrip(b"\0")[:-3])])


def test_each_part_is_checked(tmp_path: Path) -> None:
    first = write(tmp_path / "m-00001-of-00002.gguf", build_gguf(llama_metadata(), TENSORS))
    second = write(tmp_path / "m-00002-of-00002.gguf", build_gguf({"split.no": 1}, TENSORS))
    one = read_model([first]).weights_bytes
    assert read_model([first, second]).weights_bytes == 2 * one
    second.write_bytes(second.read_bytes()[:-1])
    with pytest.raises(ModelFileError, match="m-00002-of-00002"):
        read_model([first, second])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04 something else", "is not a GGUF model file"),
        (b"GG", "is not a GGUF model file"),
        (gguf_header({}, version=1)[0], "is GGUF version 1; versions 2 and 3 can be read"),
        (b"GGUF\0\0\0\x03" + bytes(16), "big-endian"),
        (gguf_header({"a": 1})[0].replace(b"\x0b\0\0\0", b"\x63\0\0\0"), "unknown type 99"),
    ],
)
def test_not_a_model(tmp_path: Path, content: bytes, message: str) -> None:
    path = write(tmp_path / "m.gguf", content)
    with pytest.raises(ModelFileError, match=message):
        read_model([path])


def test_missing_directory_and_unreadable(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="does not exist"):
        read_model([tmp_path / "none.gguf"])
    with pytest.raises(ModelFileError, match="is a directory"):
        read_model([tmp_path])
    with pytest.raises(ModelFileError, match="cannot be read"):
        read_model([write(tmp_path / "file", b"x") / "below.gguf"])


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "m.gguf", build_gguf({}))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    # Root may read everything, so the refusal is made here.
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ModelFileError, match="cannot be read: Permission denied"):
        read_model([path])


def test_a_large_vocabulary_is_quick_to_skip(tmp_path: Path) -> None:
    # The point of this reader: no token is built, so the memory of the tokens is never asked for.
    path = write(tmp_path / "m.gguf", build_gguf({"tokenizer.ggml.tokens": ["token"] * 50_000}))
    model = read_model([path])
    assert model.vocab_size == 50_000
    assert model.metadata["tokenizer.ggml.tokens"] == SkippedArray(50_000)


@pytest.mark.parametrize("count", [float("nan"), float("inf")])
def test_numbers_that_are_none_count_as_absent(tmp_path: Path, count: float) -> None:
    metadata = {**llama_metadata(), "llama.block_count": count, "llama.attention.head_count_kv": count}
    model = read_model([write(tmp_path / "m.gguf", build_gguf(metadata, TENSORS))])
    assert model.number("block_count") is None
    assert estimate(model, 512, 1).total > 0


def test_absurdly_many_layers_are_refused(tmp_path: Path) -> None:
    metadata = {**llama_metadata(), "llama.block_count": 2**31}
    with pytest.raises(ModelFileError, match="2147483648 layers"):
        read_model([write(tmp_path / "m.gguf", build_gguf(metadata, TENSORS))])


def test_absurdly_many_dimensions_are_refused(tmp_path: Path) -> None:
    header = (
        b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", 1) + b"x" + struct.pack("<I", 2**32 - 1)
    )
    with pytest.raises(ModelFileError, match="4294967295 dimensions"):
        read_model([write(tmp_path / "m.gguf", header + b"\xff" * 800)])

"""Read what a GGUF file says about itself, and check that it is all there.

The `gguf` package's reader builds every token of the vocabulary and needs eleven seconds for one
of 262,144 tokens; this one skips long arrays and needs 25 milliseconds.
Format: magic, version, counts, key-values, tensor descriptions, padding, tensor data.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mashbox.errors import ModelFileError

Scalar = bool | int | float | str


@dataclass(frozen=True, slots=True)
class SkippedArray:
    """An array too long to be worth building; only its length is known."""

    count: int


Value = Scalar | tuple[Scalar, ...] | SkippedArray

KEPT_ARRAY = 1024
"""Arrays of up to this many elements are read, longer ones skipped."""

MOST_LAYERS = 10_000
"""Far more than any model has; a damaged file that claims more would be counted through for hours."""

_ALIGNMENT = 32
_MOST_DIMENSIONS = 4
_STRING, _ARRAY = 8, 9
_SCALARS: Mapping[int, struct.Struct] = {
    number: struct.Struct(f"<{code}")
    for number, code in {
        0: "B",
        1: "b",
        2: "H",
        3: "h",
        4: "I",
        5: "i",
        6: "f",
        7: "?",
        10: "Q",
        11: "q",
        12: "d",
    }.items()
}
_U32, _U64 = _SCALARS[4], _SCALARS[10]

_BLOCKS: Mapping[int, tuple[int, int]] = {
    0: (1, 4),  # F32
    1: (1, 2),  # F16
    2: (32, 18),  # Q4_0
    3: (32, 20),  # Q4_1
    6: (32, 22),  # Q5_0
    7: (32, 24),  # Q5_1
    8: (32, 34),  # Q8_0
    9: (32, 36),  # Q8_1
    10: (256, 84),  # Q2_K
    11: (256, 110),  # Q3_K
    12: (256, 144),  # Q4_K
    13: (256, 176),  # Q5_K
    14: (256, 210),  # Q6_K
    15: (256, 292),  # Q8_K
    16: (256, 66),  # IQ2_XXS
    17: (256, 74),  # IQ2_XS
    18: (256, 98),  # IQ3_XXS
    19: (256, 50),  # IQ1_S
    20: (32, 18),  # IQ4_NL
    21: (256, 110),  # IQ3_S
    22: (256, 82),  # IQ2_S
    23: (256, 136),  # IQ4_XS
    24: (1, 1),  # I8
    25: (1, 2),  # I16
    26: (1, 4),  # I32
    27: (1, 8),  # I64
    28: (1, 8),  # F64
    29: (256, 56),  # IQ1_M
    30: (1, 2),  # BF16
    34: (256, 54),  # TQ1_0
    35: (256, 66),  # TQ2_0
    39: (32, 17),  # MXFP4
}
"""Tensor type number -> (elements per block, bytes per block)."""
_FLOATS = (0, 1, 30)  # F32, F16, BF16
_NOT_MULTIPLIED = re.compile(r"ssm_(a|d)\b|conv|position_embd|token_types|rope_")
"""Names of tensors with two dimensions that no matrix product uses."""


def whole_number(value: Value | None) -> int | None:
    """A number without its fraction; None for anything else, infinity and NaN included."""
    return int(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class GgufModel:
    """What the header of a model says; for a split model, of all its parts together."""

    metadata: Mapping[str, Value]
    weights_bytes: int
    """Bytes of tensor data."""
    float_matrices: bool = False
    """Whether a matrix of floats is multiplied with, be it among quantised ones."""

    @property
    def architecture(self) -> str:
        """The name that prefixes the model's own settings, such as `llama` or `gemma3`."""
        return str(self.metadata.get("general.architecture", ""))

    @property
    def context_length(self) -> int | None:
        """Tokens the model was trained for; None when the file does not say."""
        return self.number("context_length")

    @property
    def vocab_size(self) -> int:
        """Number of tokens in the vocabulary; 0 when the file has none."""
        tokens = self.metadata.get("tokenizer.ggml.tokens")
        if isinstance(tokens, SkippedArray):
            return tokens.count
        return len(tokens) if isinstance(tokens, tuple) else self.number("vocab_size") or 0

    def setting(self, name: str) -> Value | None:
        """The value of `<architecture>.<name>`."""
        return self.metadata.get(f"{self.architecture}.{name}")

    def number(self, name: str) -> int | None:
        """A whole-number setting of this architecture; the largest one where each layer has its own."""
        value = self.setting(name)
        items = value if isinstance(value, tuple) else (value,)
        return max((whole for item in items if (whole := whole_number(item)) is not None), default=None)


def read_model(paths: Sequence[Path]) -> GgufModel:
    """Read a model's header(s) and check that every part is complete.

    `paths` are all parts in order, one for a model that is not split. Raises ModelFileError.
    """
    headers = [_read_part(path) for path in paths]
    model = GgufModel(
        headers[0].metadata,
        sum(header.weights_bytes for header in headers),
        any(header.float_matrices for header in headers),
    )
    if (layers := model.number("block_count") or 0) > MOST_LAYERS:
        raise ModelFileError(f"{paths[0]} is damaged: it claims to have {layers} layers.")
    return model


def _read_part(path: Path) -> GgufModel:
    size = _checked_size(path)
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _parse(path, data, size)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}.") from error


def _checked_size(path: Path) -> int:
    try:
        if path.is_dir():
            raise ModelFileError(f"{path} is a directory; name the .gguf file in it.")
        size = path.stat().st_size
    except FileNotFoundError:
        raise ModelFileError(f"{path} does not exist.") from None
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}.") from error
    if size == 0:
        raise ModelFileError(f"{path} is empty.")
    return size


def _parse(path: Path, data: mmap.mmap, size: int) -> GgufModel:
    if data[:4] != b"GGUF":
        raise ModelFileError(f"{path} is not a GGUF model file.")
    reader = _Reader(data, 4)
    try:
        _check_version(path, reader.scalar(_U32))
        tensor_count, pair_count = reader.scalar(_U64), reader.scalar(_U64)
        metadata = {reader.string(): reader.value(reader.scalar(_U32)) for _ in range(pair_count)}
        tensors = [reader.tensor() for _ in range(tensor_count)]
    except (struct.error, EOFError):
        raise ModelFileError(f"{path} is cut short: its header ends after {size} bytes.") from None
    except ValueError as error:
        raise ModelFileError(f"{path} is damaged: {error}.") from None
    alignment = metadata.get("general.alignment", _ALIGNMENT)
    step = alignment if isinstance(alignment, int) and alignment > 0 else _ALIGNMENT
    start = -(-reader.position // step) * step
    weights = _end_of(tensors)
    if tensors and start + weights > size:
        raise ModelFileError(f"{path} is cut short: expected {start + weights} bytes, it has {size}.")
    return GgufModel(metadata, weights, any(tensor.is_float_matrix for tensor in tensors))


def _check_version(path: Path, version: int) -> None:
    if version in (2, 3):
        return
    if version in (2 << 24, 3 << 24):
        raise ModelFileError(f"{path} is a big-endian GGUF, which this machine cannot run.")
    raise ModelFileError(f"{path} is GGUF version {version}; versions 2 and 3 can be read.")


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    sizes: tuple[int, ...]
    kind: int
    offset: int

    @property
    def size(self) -> int:
        """Bytes; 0 for a tensor type that is not in the table."""
        per_block, block_bytes = _BLOCKS.get(self.kind, (1, 0))
        return math.prod(self.sizes) * block_bytes // per_block

    @property
    def is_float_matrix(self) -> bool:
        """Whether it is multiplied with as it is: no vector, no table, no convolution."""
        long = sum(size > 1 for size in self.sizes)
        return self.kind in _FLOATS and long > 1 and not _NOT_MULTIPLIED.search(self.name)


def _end_of(tensors: Sequence[_Tensor]) -> int:
    return max((tensor.offset + tensor.size for tensor in tensors), default=0)


class _Reader:
    """A cursor over a GGUF header. Raises struct.error or EOFError past the end of the file."""

    def __init__(self, data: mmap.mmap, position: int) -> None:
        self._data = data
        self._size = len(data)
        self.position = position

    def scalar(self, form: struct.Struct) -> int:
        return int(self._number(form))

    def _number(self, form: struct.Struct) -> bool | int | float:
        (value,) = form.unpack_from(self._data, self.position)
        self.position += form.size
        number: bool | int | float = value
        return number

    def string(self) -> str:
        length = self.scalar(_U64)
        self._skip(length)
        return self._data[self.position - length : self.position].decode("utf-8", errors="replace")

    def _skip(self, count: int) -> None:
        if count > self._size - self.position:
            raise EOFError
        self.position += count

    def value(self, kind: int) -> Value:
        if kind == _ARRAY:
            return self._array()
        return self._element(kind)()

    def _element(self, kind: int) -> Callable[[], Scalar]:
        if kind == _STRING:
            return self.string
        if (form := _SCALARS.get(kind)) is None:
            raise ValueError(f"a value has the unknown type {kind}")
        return lambda: self._number(form)

    def _array(self) -> Value:
        kind, count = self.scalar(_U32), self.scalar(_U64)
        if count <= KEPT_ARRAY:
            element = self._element(kind)
            return tuple(element() for _ in range(count))
        if kind == _STRING:
            self._skip_strings(count)
        elif (form := _SCALARS.get(kind)) is not None:
            self._skip(count * form.size)
        else:
            raise ValueError(f"an array holds the unknown type {kind}")
        return SkippedArray(count)

    def _skip_strings(self, count: int) -> None:
        # The one loop over a whole vocabulary: locals keep it quick.
        length_at, data, position = _U64.unpack_from, self._data, self.position
        for _ in range(count):
            position += 8 + length_at(data, position)[0]
            if position > self._size:
                raise EOFError
        self.position = position

    def tensor(self) -> _Tensor:
        name = self.string()
        if (dimensions := self.scalar(_U32)) > _MOST_DIMENSIONS:
            raise ValueError(f"a tensor has {dimensions} dimensions")
        sizes = tuple(self.scalar(_U64) for _ in range(dimensions))
        return _Tensor(name, sizes, self.scalar(_U32), self.scalar(_U64))

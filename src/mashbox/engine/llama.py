"""The model backend: llama.cpp through the low-level API of llama-cpp-python.

The only module that imports the bindings. Facts about the library that the code relies on are
in the comments; check them again when it is updated.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import llama_cpp as lib
import numpy as np
import numpy.typing as npt

from mashbox.config import ModelConfig
from mashbox.engine.backend import Logits, Vocabulary
from mashbox.engine.types import ModelFacts, Segment
from mashbox.errors import BackendError, ConfigError, ModelFileError
from mashbox.logs.setup import TRACE

log = logging.getLogger("mashbox.llama")

CACHE_TYPES = {
    "f32": 0,
    "f16": 1,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 6,
    "q5_1": 7,
    "q8_0": 8,
    "iq4_nl": 20,
    "bf16": 30,
}
FLASH_ATTN = {"auto": -1, "off": 0, "on": 1}
ROPE_SCALING = {"auto": -1, "none": 0, "linear": 1, "yarn": 2}
_CPU_INFO = Path("/proc/cpuinfo")
_LEVELS = {3: logging.WARNING, 4: logging.ERROR}

Int32s = npt.NDArray[np.int32]


def build_name() -> str:
    """The library's version and a digest of its compiled files, the CPU's name, and the features used."""
    digest = hashlib.sha256()
    for file in sorted((Path(lib.__file__).parent / "lib").glob("*.so")):
        digest.update(file.read_bytes())
    lines = _CPU_INFO.read_text().splitlines() if _CPU_INFO.is_file() else []
    names = [line for line in lines if line.startswith("model name")]
    chip = names[0].partition(": ")[2] if names else platform.machine()
    features = lib.llama_print_system_info().decode()
    return f"llama-cpp-python {lib.__version__}; {digest.hexdigest()[:12]}; {chip}; {features}"


class LibraryLog:
    """Takes over the library's log: into ours, and the first error of a call for messages to the user."""

    def __init__(self) -> None:
        self._error: str | None = None
        self._level = TRACE
        self._callback = lib.llama_log_callback(self._receive)
        lib.llama_log_set(self._callback, None)

    def _receive(self, level: int, text: bytes, _user: Any) -> None:
        line = text.decode("utf-8", "replace").rstrip()
        if not line:
            return
        # Level 5 continues the line before it.
        self._level = _LEVELS.get(level, TRACE) if level != 5 else self._level
        if self._level == logging.ERROR and self._error is None:
            self._error = line
        log.log(min(self._level, logging.WARNING), "%s", line)

    def forget(self) -> None:
        """What went wrong before does not count for the next call."""
        self._error = None

    def reason(self) -> str:
        """The library's first error since `forget`, which names the cause; later ones repeat it."""
        return self._error.split(": ", 1)[-1] if self._error else "the library gave no reason"


class Batch:
    """A llama_batch over arrays of our own, filled without allocation."""

    def __init__(self, rows: int) -> None:
        self.tokens: Int32s = np.zeros(rows, np.int32)
        self.positions: Int32s = np.zeros(rows, np.int32)
        self.slots: Int32s = np.zeros(rows, np.int32)
        self.outputs = np.zeros(rows, np.int8)
        self._counts = np.ones(rows, np.int32)
        # seq_id is a table of pointers: row i points at slots[i].
        base, width = self.slots.ctypes.data, self.slots.itemsize
        self._pointers = (ctypes.POINTER(ctypes.c_int32) * rows)(
            *(ctypes.cast(base + row * width, ctypes.POINTER(ctypes.c_int32)) for row in range(rows))
        )
        self.struct = lib.llama_batch(
            n_tokens=0,
            token=self._pointer(self.tokens, ctypes.c_int32),
            embd=None,
            pos=self._pointer(self.positions, ctypes.c_int32),
            n_seq_id=self._pointer(self._counts, ctypes.c_int32),
            seq_id=self._pointers,
            logits=self._pointer(self.outputs, ctypes.c_int8),
        )

    @staticmethod
    def _pointer(array: npt.NDArray[Any], kind: Any) -> Any:
        return array.ctypes.data_as(ctypes.POINTER(kind))


def _most_rows(config: ModelConfig) -> int:
    """Of one call: a prompt's end may bring a piece shorter than a chunk with it."""
    return max(config.prefill_rows, 2 * config.prefill_chunk, config.slots)


class LlamaBackend:
    """One loaded model with its context; see `backend.Backend` for the contract."""

    def __init__(self, config: ModelConfig, progress: Callable[[float], None]) -> None:
        self._log = LibraryLog()
        # Else a failed assertion of the library attaches a debugger, which holds the restart up for seconds.
        os.environ.setdefault("GGML_NO_BACKTRACE", "1")
        lib.llama_backend_init()
        self._model = self._load_model(config, progress)
        self._context = self._create_context(config)
        self._memory = lib.llama_get_memory(self._context)
        self._vocab = lib.llama_model_get_vocab(self._model)
        self._batch = Batch(_most_rows(config))
        self._vocab_size = int(lib.llama_vocab_n_tokens(self._vocab))
        self._window = int(lib.llama_model_n_swa(self._model))
        self._recurrent = bool(
            lib.llama_model_is_recurrent(self._model) or lib.llama_model_is_hybrid(self._model)
        )
        # Of a purely recurrent model, as of full attention, a partial image is the whole state.
        self._needs_rest = bool(self._window or lib.llama_model_is_hybrid(self._model))
        self._pieces = [self._convert(token, special=False) for token in range(self._vocab_size)]
        self.vocabulary = self._read_vocabulary()
        self._ends = self.vocabulary.ends
        self._logits_at = 0
        self._logits: npt.NDArray[np.float32] = np.zeros((0, 0), np.float32)
        self._rows = config.slots
        self._decoded: list[int] = []
        """The slots of the last decode call, whose rows in the batch are still set; [] after a prefill."""
        self.facts = self._read_facts(config)

    # --- loading -----------------------------------------------------------------------------

    def _load_model(self, config: ModelConfig, progress: Callable[[float], None]) -> Any:
        params = lib.llama_model_default_params()
        params.n_gpu_layers = config.gpu_layers
        # Not mapped from the file: only memory of our own can lie in huge pages.
        params.load_mode = lib.LLAMA_LOAD_MODE_NONE
        last = -1.0

        def report(fraction: float, _user: Any) -> bool:
            nonlocal last
            if fraction - last >= 0.01:
                last = fraction
                progress(fraction)
            return True

        callback = lib.llama_progress_callback(report)
        params.progress_callback = callback
        model = lib.llama_model_load_from_file(str(config.path).encode(), params)
        if not model:
            raise ModelFileError(f"Cannot load {config.path}: {self._log.reason()}.")
        return model

    def _create_context(self, config: ModelConfig) -> Any:
        params = lib.llama_context_default_params()
        params.n_ctx = config.context * config.slots
        params.n_seq_max = config.slots
        params.n_batch = params.n_ubatch = _most_rows(config)
        params.n_threads = params.n_threads_batch = config.threads
        params.kv_unified = False
        # Kept whole, a window's cells lie in order of position, so that a restored state computes the same.
        params.swa_full = config.exact
        params.flash_attn_type = FLASH_ATTN[config.flash_attn]
        params.type_k = CACHE_TYPES[config.cache_type_k]
        params.type_v = CACHE_TYPES[config.cache_type_v]
        kind, _, factor = config.rope_scaling.partition(":")
        params.rope_scaling_type = ROPE_SCALING[kind]
        if factor:
            params.rope_freq_scale = 1.0 / float(factor)
        context = lib.llama_init_from_model(self._model, params)
        if not context:
            raise ConfigError(f"Cannot set up the model's context: {self._log.reason()}.")
        return context

    def _read_facts(self, config: ModelConfig) -> ModelFacts:
        control = (
            self._literal(token)
            for token in range(self._vocab_size)
            if lib.llama_vocab_is_control(self._vocab, token)
        )
        longest = max(
            len(literal.decode("utf-8", "replace").encode()) for literal in self.vocabulary.literals
        )
        template = lib.llama_model_chat_template(self._model, None)
        return ModelFacts(
            # The library rounds each sequence's cells up; we promise what was asked for.
            context=min(config.context, int(lib.llama_n_ctx_seq(self._context))),
            slots=config.slots,
            grid=config.prefill_chunk,
            widest=config.prefill_rows,
            vocab_size=self._vocab_size,
            longest_piece=longest,
            chat_template=template.decode("utf-8", "replace") if template else None,
            bos=self._literal(lib.llama_vocab_bos(self._vocab)),
            eos=self._literal(lib.llama_vocab_eos(self._vocab)),
            control_tokens=tuple(literal for literal in control if literal),
            weight_bytes=int(lib.llama_model_size(self._model)),
            parameters=int(lib.llama_model_n_params(self._model)),
            description=self._read_text(lib.llama_model_desc, self._model),
            build=build_name(),
            can_trim=not (self._window or self._recurrent),
            exact=config.exact,
            decode_rows=config.decode_rows if config.exact else 0,
            experts=self._read_number("expert_count"),
            expert_layers=self._expert_layers(),
        )

    def _read_number(self, name: str) -> int:
        """A whole number of the model's own settings; 0 when it has none of that name."""
        found = self._read_setting(f"{self._read_setting('general.architecture')}.{name}")
        return int(found) if found.isdecimal() else 0

    def _read_setting(self, key: str) -> str:
        """As the library writes it, at most 255 bytes; "" when the model has none of that name."""
        buffer = ctypes.create_string_buffer(256)
        size = lib.llama_model_meta_val_str(self._model, key.encode(), buffer, len(buffer))
        return "" if size < 0 else buffer.value.decode("utf-8", "replace")

    def _expert_layers(self) -> int:
        if not self._read_number("expert_count"):
            return 0
        return self._read_number("block_count") - self._read_number("leading_dense_block_count")

    @staticmethod
    def _read_text(function: Any, *args: Any) -> str:
        buffer = ctypes.create_string_buffer(1024)
        function(*args, buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    def _read_vocabulary(self) -> Vocabulary:
        tokens = range(self._vocab_size)
        literals = [self._convert(token, special=True) for token in tokens]
        return Vocabulary(
            literals=literals,
            control=frozenset(token for token in tokens if literals[token] and not self._pieces[token]),
            ends=frozenset(token for token in tokens if lib.llama_vocab_is_eog(self._vocab, token)),
        )

    def _literal(self, token: int) -> str:
        """A token's text as it stands in the vocabulary, control tokens included; "" for none."""
        return "" if token < 0 else self.vocabulary.literals[token].decode("utf-8", "replace")

    def _convert(self, token: int, special: bool) -> bytes:
        buffer = ctypes.create_string_buffer(64)
        size = lib.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, special)
        if size < 0:
            buffer = ctypes.create_string_buffer(-size)
            size = lib.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, special)
        return buffer.raw[:size]

    # --- text and tokens ---------------------------------------------------------------------

    def tokenize(self, segments: Sequence[Segment], begins: bool = True) -> list[int]:
        """See `Backend`. A beginning-of-text token is not added when the text brings it."""
        if not begins:
            return [token for segment in segments for token in self._continue(segment)]
        tokens: list[int] = []
        brings_bos = bool(segments) and segments[0].parse_special and self._starts_with_bos(segments[0].text)
        for place, segment in enumerate(segments):
            tokens += self._tokenize(segment, add_special=place == 0 and not brings_bos)
        return tokens if segments else self._tokenize(Segment("", False), add_special=True)

    def _continue(self, segment: Segment) -> list[int]:
        tokens = self._tokenize(segment, add_special=False)
        if self._spell(tokens) == segment.text.encode("utf-8", "replace"):
            return tokens
        # Some vocabularies put a space before a text; before a line break it is a token of its own.
        behind = self._tokenize(Segment("\n" + segment.text, segment.parse_special), add_special=False)
        return behind[2:] if self._spell(behind[:2]) == b" \n" else tokens

    def _spell(self, tokens: Sequence[int]) -> bytes:
        return b"".join(self.vocabulary.literals[token] for token in tokens)

    def _starts_with_bos(self, text: str) -> bool:
        return bool(self.facts.bos) and text.startswith(self.facts.bos)

    def _tokenize(self, segment: Segment, add_special: bool) -> list[int]:
        data = segment.text.encode("utf-8", "replace")
        room = len(data) + 2
        while True:
            tokens = np.empty(room, np.int32)
            pointer = tokens.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
            count = lib.llama_tokenize(
                self._vocab, data, len(data), pointer, room, add_special, segment.parse_special
            )
            if count >= 0:
                found: list[int] = tokens[:count].tolist()
                return found
            room = -count

    def piece(self, token: int) -> bytes:
        """See `Backend`."""
        return self._pieces[token]

    def is_end(self, token: int) -> bool:
        """See `Backend`."""
        return token in self._ends

    # --- computing ---------------------------------------------------------------------------

    def prefill(self, slot: int, start: int, tokens: Sequence[int], want_logits: bool) -> Logits | None:
        """See `Backend`."""
        rows = len(tokens)
        batch = self._batch
        self._decoded = []
        batch.tokens[:rows] = tokens
        batch.positions[:rows] = np.arange(start, start + rows)
        batch.slots[:rows] = slot
        batch.outputs[:rows] = 0
        batch.outputs[rows - 1] = want_logits
        self._run(rows)
        return self._read_logits()[0] if want_logits else None

    def decode(
        self, slots: Sequence[int], positions: Sequence[int], tokens: Sequence[int]
    ) -> Sequence[Logits]:
        """See `Backend`."""
        rows = len(tokens)
        batch = self._batch
        if slots != self._decoded:
            batch.slots[:rows] = slots
            batch.outputs[:rows] = 1
            self._decoded = list(slots)
        batch.tokens[:rows] = tokens
        batch.positions[:rows] = positions
        self._run(rows)
        logits = self._read_logits()
        return [logits[row] for row in range(rows)]

    def _run(self, rows: int) -> None:
        self._log.forget()
        self._batch.struct.n_tokens = rows
        status = lib.llama_decode(self._context, self._batch.struct)
        if status != 0:
            raise BackendError(f"llama_decode returned {status} for {rows} rows: {self._log.reason()}")

    def _read_logits(self) -> npt.NDArray[np.float32]:
        """All output rows of the last call, shape [slots, vocab_size]; rows beyond the call's are stale."""
        pointer = lib.llama_get_logits(self._context)
        address = ctypes.cast(pointer, ctypes.c_void_p).value or 0
        if address != self._logits_at:
            self._logits_at = address
            self._logits = np.ctypeslib.as_array(pointer, shape=(self._rows, self._vocab_size))
        return self._logits

    def trim(self, slot: int, length: int) -> bool:
        """See `Backend`. Windows have forgotten what lies before them, and recurrent states cannot be cut."""
        first, last = self.positions(slot)
        possible = 0 < length <= last + 1 and length >= self._shortest(first, last)
        if possible and lib.llama_memory_seq_rm(self._memory, slot, length, -1):
            return True
        self._empty(slot)
        return length == 0

    def _empty(self, slot: int) -> None:
        lib.llama_memory_seq_rm(self._memory, slot, -1, -1)

    def shortest(self, slot: int) -> int:
        """See `Backend`."""
        return self._shortest(*self.positions(slot))

    def _shortest(self, first: int, last: int) -> int:
        """The same, from the positions that a state holds. What follows a cut needs the window before it."""
        if self._recurrent:
            return last + 1
        return min(first + self._window, last + 1) if self._window and first > 0 else 0

    def positions(self, slot: int) -> tuple[int, int]:
        """See `Backend`. Recurrent layers hold the last position only."""
        first = int(lib.llama_memory_seq_pos_min(self._memory, slot))
        return first, int(lib.llama_memory_seq_pos_max(self._memory, slot))

    def state_size(self, slot: int, partial: bool) -> int:
        """See `Backend`."""
        return int(lib.llama_state_seq_get_size_ext(self._context, slot, self._flags(partial)))

    def save(self, slot: int, partial: bool, into: memoryview) -> None:
        """See `Backend`."""
        self._log.forget()
        size, target = len(into), (ctypes.c_uint8 * len(into)).from_buffer(into)
        flags = self._flags(partial)
        if lib.llama_state_seq_get_data_ext(self._context, target, size, slot, flags) != size:
            raise BackendError(f"cannot save a state of {size} bytes: {self._log.reason()}")

    def restore(self, slot: int, partial: bool, image: memoryview) -> None:
        """See `Backend`."""
        self._log.forget()
        size = len(image)
        _, held = self.positions(slot)
        source, flags = (ctypes.c_uint8 * len(image)).from_buffer(image), self._flags(partial)
        # The library empties its target before it reads; what it then refuses leaves a part of a state.
        if lib.llama_state_seq_set_data_ext(self._context, source, size, slot, flags) != size:
            self._empty(slot)
            raise BackendError(f"cannot restore a state of {size} bytes: {self._log.reason()}")
        first, last = self.positions(slot)
        if partial and self._needs_rest and not 0 <= first <= last <= held:
            self._empty(slot)
            raise BackendError(f"a partial state of {max(first, last) + 1} tokens needs as many in its slot")

    @staticmethod
    def _flags(partial: bool) -> int:
        return int(lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY if partial else lib.LLAMA_STATE_SEQ_FLAGS_NONE)

    def close(self) -> None:
        """Free the model. Nothing may be called after it; a worker simply ends."""
        lib.llama_free(self._context)
        lib.llama_model_free(self._model)

"""The engine's vocabulary: what goes in, what comes out. No protocol's name, no llama.

All types are frozen; they cross the worker's socket as they are (`ipc.py`).
Token counts are in tokens, times in milliseconds, sizes in bytes.
"""

from __future__ import annotations

from enum import Enum

import msgspec


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a prompt. Only with `parse_special` may its text become control tokens."""

    text: str
    parse_special: bool


class Sampling(msgspec.Struct, frozen=True, array_like=True):
    """How the next token is chosen. The defaults are greedy; ranges are checked at the edge."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0

    @property
    def greedy(self) -> bool:
        """True when the most likely token is always taken; a tiny temperature would overflow."""
        return self.temperature < 1e-5


class FinishReason(str, Enum):
    """Why a request ended well."""

    STOP = "stop"  # the model ended its turn
    STOP_STRING = "stop_string"  # one of the request's stop strings came
    LENGTH = "length"  # max_tokens or the context's end


class Reasoning(msgspec.Struct, frozen=True, array_like=True):
    """How a model marks its thinking. The marks are no part of any text that comes out."""

    opener: str
    closer: str
    inside: bool = False
    """The prompt ends inside a thinking block."""
    budget: int | None = None
    """Most tokens of thinking; once spent, `closing` is written in the model's place."""
    closing: str = ""
    """The closer with the white space the model puts around it."""
    anywhere: bool = True
    """False: an opener counts at the start of a line only, and a closer outside of a block is text."""
    calls: tuple[str, ...] = ()
    """What begins a tool call: from there on marks are text, as they may stand in its arguments."""


class Constraint(msgspec.Struct, frozen=True, array_like=True):
    """What the answer must look like once the model does not think.

    `grammars` are llguidance Lark texts, the strictest first; the first that compiles counts.
    """

    grammars: tuple[str, ...]
    about: str = ""
    """What they describe, for messages: part of a sentence."""


class Usage(msgspec.Struct, frozen=True, array_like=True):
    """Counts and times of one finished request. `reasoning_tokens` are those of its completion
    tokens that were thinking, the closer included.

    `prompt_ms` runs from the start of the run to the first new token, `predicted_ms` from the
    first to the last new token, `queue_ms` from arrival to the start of the run.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    queue_ms: float
    prompt_ms: float
    predicted_ms: float
    reasoning_tokens: int = 0


# --- to the engine ---------------------------------------------------------------------------


class Submit(msgspec.Struct, frozen=True, array_like=True, tag="submit"):
    """Run one request. `max_tokens` None means up to the end of the context.

    `visible` are control tokens whose literals are part of the answer's text. `stop` strings count
    only outside of thinking.
    """

    id: str
    segments: tuple[Segment, ...]
    sampling: Sampling
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    reasoning: Reasoning | None = None
    constraint: Constraint | None = None
    visible: tuple[str, ...] = ()
    tenant: str = ""
    """Whose request it is: cached prompts are used within one tenant only."""
    branches: tuple[int, ...] = ()
    """Where other prompts may go on differently: characters from the start of the segments' joined texts,
    ascending. A hint; needed where a state cannot be cut back."""


class Count(msgspec.Struct, frozen=True, array_like=True, tag="count"):
    """How many tokens is this prompt? Answered with `Counted`, however long it is."""

    id: str
    segments: tuple[Segment, ...]
    tenant: str = ""


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag="cancel"):
    """Forget a request, wherever it is. It gets no further events."""

    id: str


class Shutdown(msgspec.Struct, frozen=True, array_like=True, tag="shutdown"):
    """End the worker at once."""


Command = Submit | Count | Cancel | Shutdown


# --- from the engine -------------------------------------------------------------------------


class Accepted(msgspec.Struct, frozen=True, array_like=True, tag="accepted"):
    """The prompt is tokenised, fits, and waits for a slot."""

    id: str
    prompt_tokens: int


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    """The prompt fills or exceeds the context, or has no token at all; the request has ended."""

    id: str
    prompt_tokens: int
    context: int


class Counted(msgspec.Struct, frozen=True, array_like=True, tag="counted"):
    """The answer to `Count`."""

    id: str
    tokens: int


class Invalid(msgspec.Struct, frozen=True, array_like=True, tag="invalid"):
    """The request cannot be run as it is, and never will; `message` is a plain sentence. It has ended."""

    id: str
    message: str


class Started(msgspec.Struct, frozen=True, array_like=True, tag="started"):
    """The request has a slot; `cached_tokens` of its prompt need not be computed."""

    id: str
    cached_tokens: int


class TextDelta(msgspec.Struct, frozen=True, array_like=True, tag="text"):
    """New text: whole characters, nothing of a stop string or of a thinking mark."""

    id: str
    text: str
    thinking: bool = False


class Finished(msgspec.Struct, frozen=True, array_like=True, tag="finished"):
    """The request ended well. `stop` is the stop string that ended it, if one did."""

    id: str
    reason: FinishReason
    usage: Usage
    stop: str | None = None


class Failed(msgspec.Struct, frozen=True, array_like=True, tag="failed"):
    """The request ended badly; `message` is a plain sentence."""

    id: str
    message: str


RequestEvent = Accepted | Refused | Invalid | Counted | Started | TextDelta | Finished | Failed


class ModelFacts(msgspec.Struct, frozen=True):
    """What the worker knows about the loaded model."""

    context: int
    """Tokens one slot holds."""
    slots: int
    grid: int
    """Least tokens of a prefill call, but for a prompt's end. In exact mode calls begin at its multiples."""
    widest: int
    """Most tokens of one prefill call, but for a prompt's end that goes with it."""
    vocab_size: int
    longest_piece: int
    """Most characters one token can stand for."""
    chat_template: str | None
    bos: str
    eos: str
    control_tokens: tuple[str, ...]
    """Literals that become control tokens when specials are parsed."""
    weight_bytes: int
    parameters: int
    description: str
    build: str
    """The library as it was compiled, the CPU, and the features of it that are used."""
    can_trim: bool
    """Whether a sequence's state can be cut back to any shorter length."""
    exact: bool = False
    """Only prefilled blocks are reused, and decode calls have at most `decode_rows` rows."""
    decode_rows: int = 0
    """Most rows of one decode call in exact mode; 0: any number."""
    experts: int = 0
    """Experts of each mixture-of-experts layer; 0 for a dense model."""
    expert_layers: int = 0
    """Layers with routed experts."""


class Loading(msgspec.Struct, frozen=True, array_like=True, tag="loading"):
    """Progress of loading, 0 to 1."""

    fraction: float


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """The model is loaded."""

    facts: ModelFacts


class LoadFailed(msgspec.Struct, frozen=True, array_like=True, tag="load_failed"):
    """The model cannot be loaded. At the first load that is final; later it is tried again."""

    message: str


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag="heartbeat"):
    """A sign of life. `step` counts the engine's steps, so a hung loop shows."""

    step: int
    running: int
    waiting: int
    kv_tokens: int = 0
    """Tokens that the requests in slots hold now."""


class Silent(msgspec.Struct, frozen=True, array_like=True, tag="silent"):
    """The worker may give no sign of life for so many seconds: a library is about to hold the interpreter."""

    seconds: float


class CacheReport(msgspec.Struct, frozen=True, array_like=True, tag="cache"):
    """What the prompt cache holds in host memory; sent when it has changed. Counts are since the start."""

    states: int = 0
    """Saved states."""
    host_bytes: int = 0
    """Of saved states with their snapshots, each counted once."""
    snapshot_bytes: int = 0
    """Of the slots' snapshots that no saved state has."""
    evictions: int = 0
    """States removed to stay under the cap."""
    dropped: int = 0
    """States that failed a check before or after they were restored."""


EMPTY_CACHE = CacheReport()


WorkerEvent = RequestEvent | Loading | Ready | LoadFailed | Heartbeat | Silent | CacheReport

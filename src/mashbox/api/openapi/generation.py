"""The request fields that every generating route shares."""

from __future__ import annotations

from mashbox.api.openapi.schema import Notes, ignored, note
from mashbox.api.wire import MAX_STOP_CHARACTERS, SEED_RANGE
from mashbox.engine.types import Sampling

MODEL = (
    "Id of the model that runs here, or nothing. Another id is answered with 404 `model_not_found`; `GET "
    "/v1/models` tells the id."
)
ANY_MODEL = "Any id. The one model of this server answers, and the answer repeats the id that was sent."
STREAM = (
    "Send the answer as server-sent events while it is made. A client that takes nothing off its stream "
    "for 30 s is disconnected and its answer ends."
)
SESSION = (
    "Names the session in the server's log, as the `X-Session-Id` header does. It changes nothing about "
    "the answer, and values that are no text are ignored."
)
MERGE = (
    "Ignored. Requests always share the running batch from its next step on, and no field of one request "
    "changes how others are served."
)
UNSUPPORTED_LOGPROBS = (
    "Log probabilities are not given: a request that asks for them gets 400 naming this field."
)


def shared_notes(defaults: Sampling, model: str = MODEL) -> Notes:
    """`defaults` are what the server uses where sampling fields are absent; `model` says which ids count."""
    return {
        "model": note(model),
        "stream": note(STREAM, default=False),
        "max_tokens": note("Most new tokens. Without it the answer may fill the rest of the context."),
        "max_completion_tokens": note("The newer name of `max_tokens`; it counts when both are there."),
        **sampling_notes(defaults),
        "stop": note(
            "A text, or a list of texts, that ends the answer before it. "
            f"All of them together have {MAX_STOP_CHARACTERS} characters at most."
        ),
        "stop_sequences": note("The same under Anthropic's name; counts when `stop` is absent."),
        "n": note("How many answers; only 1 is possible.", minimum=1, maximum=1),
        "prompt_cache_key": ignored(SESSION, "string"),
    }


def sampling_notes(defaults: Sampling) -> Notes:
    """Words for the fields of `Sampling`."""
    return {
        "temperature": note(
            "How freely to choose: 0 always takes the most likely token.", default=defaults.temperature
        ),
        "top_p": note(
            "Choose among the most likely tokens that together have this probability.", default=defaults.top_p
        ),
        "top_k": note(
            "Choose among this many of the most likely tokens; 0 is no limit.", default=defaults.top_k
        ),
        "min_p": note(
            "Leave out tokens less likely than this part of the most likely one.", default=defaults.min_p
        ),
        "seed": note(
            "Same seed, request and settings: same choices. Drawn at random when absent.",
            minimum=SEED_RANGE.start,
            maximum=SEED_RANGE.stop - 1,
        ),
        "repetition_penalty": note(
            "Divides the scores of tokens that the prompt or the answer has already; 1 is none.",
            default=defaults.repetition_penalty,
        ),
        "frequency_penalty": note(
            "Taken off a token's score for each time the answer has it; 0 is none.",
            default=defaults.frequency_penalty,
        ),
        "presence_penalty": note(
            "Taken off a token's score once the answer has it; 0 is none.", default=defaults.presence_penalty
        ),
    }

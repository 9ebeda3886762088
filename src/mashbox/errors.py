"""Every error mashbox raises on purpose.

    MashboxError
    ├── ConfigError                a flag, file or port the user can put right (CLI: one line, exit 2)
    │   ├── ModelFileError         missing, cut short, not a GGUF, checksum wrong
    │   ├── ModelTooBigError       does not fit in memory
    │   ├── SourceError            a download source refused or failed
    │   └── SelectionError         a repository holds no file, or several, that fit what was asked for
    ├── BackendError               the model's library failed; the message holds nothing of a request
    └── RequestError               a request that gets an error answer; carries status, code and param
        ├── InvalidRequestError    400
        │   └── ContextLengthError 400, code context_length_exceeded
        ├── AuthenticationError    401, code invalid_api_key
        ├── ForbiddenError         403: a host name or a web page that the server does not serve
        ├── ModelNotFoundError     404, code model_not_found
        ├── RouteNotFoundError     404
        ├── MethodNotAllowedError  405, with the methods that are allowed
        ├── RequestTimeoutError    408
        ├── BodyTooLargeError      413
        ├── UriTooLongError        414
        ├── MediaTypeError         415
        ├── HeadersTooLargeError   431
        ├── ClientGoneError        499: nobody is left to read the answer
        ├── OverloadedError        429 with retry_after: too many of this tenant's wait, or bodies fill memory
        │   └── QueueFullError     the same, too many of all wait (529 on /v1/messages)
        ├── NotReadyError          503 with retry_after (529 on /v1/messages)
        ├── EngineError            500: the model's worker failed
        │   └── EngineFault        the same, and it may be tried again
        └── InternalError          500: a bug in mashbox

Wire shapes live in `http/errors.py` (OpenAI) and `http/anthropic_errors.py`, one mapping table per protocol.
"""

from __future__ import annotations


class MashboxError(Exception):
    """Base of all deliberate errors; `str(error)` is a plain English sentence."""


class ConfigError(MashboxError):
    """The command line, a file or the machine does not allow the start."""


class ModelFileError(ConfigError):
    """A model file is missing, damaged or not a GGUF."""


class ModelTooBigError(ConfigError):
    """Weights plus slots x context do not fit in memory."""


class SourceError(ConfigError):
    """A download source refused or failed; the next source is tried."""


class SelectionError(ConfigError):
    """A repository holds no file, or more than one, that fits; the message lists the choices."""


class BackendError(MashboxError, RuntimeError):
    """The model's library failed. The message may be logged: it holds nothing of a prompt or an answer."""


class RequestError(MashboxError):
    """A request that is answered with an error.

    `param` names the offending request field, `code` is the machine-readable reason,
    `retry_after` (seconds) goes into the Retry-After header.
    """

    status = 400
    code: str | None = None
    retry_after: int | None = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        if code is not None:
            self.code = code


class InvalidRequestError(RequestError):
    """The request is malformed or asks for something this server does not do."""


class ContextLengthError(InvalidRequestError):
    """The prompt fills or exceeds the context. Not `counted`: it has `prompt_tokens` or more."""

    code = "context_length_exceeded"

    def __init__(self, prompt_tokens: int, context: int, *, counted: bool = True) -> None:
        has = f"{'' if counted else 'at least '}{prompt_tokens}"
        super().__init__(
            f"This model's maximum context length is {context} tokens, and at least one must be left "
            f"for the answer. However, your prompt has {has} tokens. Please shorten it.",
            param="messages",
        )
        self.prompt_tokens = prompt_tokens
        self.context = context
        self.counted = counted


class AuthenticationError(RequestError):
    """The request carries no key, a wrong one, or two. The message never shows a key."""

    status = 401
    code = "invalid_api_key"


class ForbiddenError(RequestError):
    """The request names a host that this server is not, or comes from a web page of another origin."""

    status = 403


class ModelNotFoundError(RequestError):
    """The request names a model this server does not run."""

    status = 404
    code = "model_not_found"


class RouteNotFoundError(RequestError):
    """No such path."""

    status = 404


class MethodNotAllowedError(RequestError):
    """The path exists, the method does not. `allow` goes into the Allow header."""

    status = 405

    def __init__(self, message: str, *, allow: str) -> None:
        super().__init__(message)
        self.allow = allow


class RequestTimeoutError(RequestError):
    """The client took too long to send its request."""

    status = 408


class BodyTooLargeError(RequestError):
    """The body is longer than the server reads."""

    status = 413


class UriTooLongError(RequestError):
    """The path is longer than the server reads."""

    status = 414


class MediaTypeError(RequestError):
    """The body is not application/json."""

    status = 415


class HeadersTooLargeError(RequestError):
    """The headers are more, or longer, than the server reads."""

    status = 431


class ClientGoneError(RequestError):
    """The client closed the connection before its answer was complete."""

    status = 499

    def __init__(self) -> None:
        super().__init__("The client closed the connection.")


class OverloadedError(RequestError):
    """Too many requests of one tenant are waiting for a slot, or too many bytes of bodies are held."""

    status = 429
    code = "rate_limit_exceeded"

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class QueueFullError(OverloadedError):
    """Too many requests are waiting for a slot."""


class NotReadyError(RequestError):
    """The model is loading, restarting or the server is shutting down."""

    status = 503
    code = "not_ready"

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class EngineError(RequestError):
    """The model's worker failed while the request ran."""

    status = 500
    code = "engine_error"


class EngineFault(EngineError):
    """The worker failed a request that it has not been given a second time."""


class InternalError(RequestError):
    """Something that must not happen did; the log has the traceback."""

    status = 500
    code = "internal_error"

    def __init__(self) -> None:
        super().__init__("The server met an internal error while it worked on this request.")

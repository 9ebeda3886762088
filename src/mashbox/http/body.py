"""Request bodies: JSON in, typed values out, every fault told with the field's name."""

from __future__ import annotations

import asyncio
import re
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from mashbox.errors import BodyTooLargeError, ClientGoneError, InvalidRequestError, MediaTypeError
from mashbox.http.body_budget import BodyShare, share_in
from mashbox.http.echo import echo
from mashbox.http.json import JSON
from mashbox.http.refusal import raise_refusal
from mashbox.http.shape import check_shape

T = TypeVar("T")

MAX_BODY_BYTES = 32 * 1024 * 1024
SMALL_BODY_BYTES = 64 * 1024
"""Larger bodies are decoded in a thread: other clients are served meanwhile."""


async def read_json(request: Request, decoder: msgspec.json.Decoder[T]) -> T:
    """Read and decode the body of a POST.

    Raises MediaTypeError (415), BodyTooLargeError (413), OverloadedError (429), InvalidRequestError
    (400) or, when the client leaves while it sends, ClientGoneError.
    """
    require_json(request)
    with share_in(request.scope) as share:
        body = await read_body(request, share)
        if len(body) <= SMALL_BODY_BYTES:
            return decode_json(body, decoder)
        return await asyncio.to_thread(decode_json, body, decoder)


def require_json(request: Request) -> None:
    """Refuse any content type but application/json in UTF-8: a web page cannot send that one unasked."""
    media_type, _, options = request.headers.get("content-type", "").partition(";")
    media_type = media_type.strip().lower()
    if media_type != JSON:
        got = f"not {echo(media_type)}" if media_type else "and this request has none"
        raise MediaTypeError(f"The Content-Type must be application/json, {got}.")
    charset = _CHARSET.search(options)
    if charset is not None and charset["name"].lower() not in ("utf-8", "utf8"):
        raise MediaTypeError(f"JSON must be sent in UTF-8, not in {echo(charset['name'])}.")
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        raise MediaTypeError(f"The body must be sent as it is, not with Content-Encoding {echo(coding)}.")


_CHARSET = re.compile(r"""(?:^|;)\s*charset\s*=\s*"?(?P<name>[^";]*?)"?\s*(?:;|$)""", re.IGNORECASE)


async def read_body(request: Request, share: BodyShare, limit: int = MAX_BODY_BYTES) -> bytes:
    """The whole body, at most `limit` bytes; or whatever the connection found wrong while it came."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise _too_large(limit)
            share.grow_to(len(body))
    except ClientDisconnect:
        raise ClientGoneError from None
    raise_refusal(request.scope)
    return bytes(body)


def _too_large(limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"The request body is larger than {limit // 2**20} MiB.")


def decode_json(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode, or raise InvalidRequestError with the field in `param`.

    Halves of surrogate pairs, which JavaScript clients send when they cut a text inside an emoji,
    are read as U+FFFD.
    """
    check_shape(body)
    if not body.strip():
        raise InvalidRequestError("The request body is empty; it must be a JSON object.")
    try:
        try:
            return decoder.decode(body)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            if not _SURROGATE.search(body):
                raise
            mended = mend_surrogates(body)
            if mended == body:
                raise
            return decoder.decode(mended)
    except msgspec.ValidationError as error:
        raise invalid_field(str(error)) from None
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"The request body is not valid JSON: {error}.") from None
    except RecursionError:
        raise InvalidRequestError("The request body is nested too deeply.") from None


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# At most 16384 in one match: between matches other threads get the interpreter.
_SURROGATES = re.compile(
    rb"((?:[^\\]++|\\[^u]|\\u(?![dD][89a-fA-F])|\\u[dD][89abAB]HH\\u[dD][c-fC-F]HH){1,16384}+)|\\u[dD][89a-fA-F]HH".replace(
        b"H", b"[0-9a-fA-F]"
    ),
    re.DOTALL,
)
_REPLACEMENT = rb"\ufffd"
_MOST_MENDED = 4000
"""Clients cut a text at its ends: a body with more than a thousand halves is not worth the time.
Counted in matches: the text of the largest body makes a thousand, and each half ends one early."""


def mend_surrogates(body: bytes) -> bytes:
    r"""The same JSON text with unpaired `\ud800`-`\udfff` escapes, the first 1000 at least, as `\ufffd`."""
    if _SURROGATE.search(body) is None:
        return body
    return _SURROGATES.sub(lambda found: found[1] or _REPLACEMENT, body, count=_MOST_MENDED)


_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<field>.*)`$")
_ENUM = re.compile(r"^Invalid enum value (.*)$", re.DOTALL)
_WORDS = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_QUOTED = re.compile(r"`([^`]*)`")


def invalid_field(message: str, within: str = "") -> InvalidRequestError:
    """msgspec's message as ours: "Expected `str`, got `int` - at `$.messages[0].role`" and so on.

    `within` is the place in the body of the value that the message is about.
    """
    found = _AT.match(message)
    assert found is not None
    what, path = found["what"], ".".join(filter(None, (within, found["path"])))
    if missing := _MISSING.match(what):
        param = f"{path}.{missing['field']}" if path else missing["field"]
        return InvalidRequestError(f"Missing required field '{param}'.", param=param)
    plain = _QUOTED.sub(lambda quoted: _plain_types(quoted[1]), _ENUM.sub(r"\1 is not a known value", what))
    if not path:
        return InvalidRequestError(f"Invalid request body: {_lower_first(plain)}.")
    return InvalidRequestError(f"Invalid value for '{path}': {_lower_first(plain)}.", param=path)


def _plain_types(types: str) -> str:
    return " or ".join(_WORDS.get(name, name) for name in types.split(" | ") if name != "null") or "null"


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]

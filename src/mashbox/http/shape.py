"""How much there is in a JSON text, told from its bytes: before anything is built from it.

Decoding holds the interpreter, and with it all other clients, for as long as it takes. That depends
on how many values a text has far more than on its length.
"""

from __future__ import annotations

from mashbox.errors import BodyTooLargeError, InvalidRequestError

MAX_DEPTH = 100
"""Objects and arrays within each other. Everything that walks through a request is recursive."""
MAX_PARTS = 300_000
"""Strings, brackets and commas."""
MAX_ESCAPES = 2_000_000
"""Backslashes in strings."""
MAX_OUTSIDE = 8 * 1024 * 1024
"""Bytes that belong to no string: digits, above all."""
_STEP = 64 * 1024
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes(code for code in range(256) if code not in b"[]{},")
_COMMA = b","


def check_shape(body: bytes) -> None:
    """Raise InvalidRequestError or BodyTooLargeError when a JSON text is too deep or holds too much.

    For a text that is no JSON the result means nothing. No step of it takes long.
    """
    escapes = parts = outside = quotes = at = 0
    brackets = bytearray()
    while at < len(body):
        piece = _whole_escapes(body[at : at + _STEP + 1])
        at += len(piece)
        if b"\\" in piece:
            escapes += piece.count(b"\\")
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        runs = piece.split(b'"')
        plain = b"".join(runs[quotes & 1 :: 2])
        signs = plain.translate(_BRACKETS, _OTHERS)
        quotes += len(runs) - 1
        outside += len(plain)
        parts += len(signs) + len(runs) // 2
        brackets += signs.replace(_COMMA, b"")
        if parts > MAX_PARTS or escapes > MAX_ESCAPES or outside > MAX_OUTSIDE:
            raise BodyTooLargeError("The request body holds too many values.")
    if is_deep(bytes(brackets)):
        raise InvalidRequestError(f"The request body is nested too deeply: {MAX_DEPTH} levels at most.")


def _whole_escapes(piece: bytes) -> bytes:
    """`piece` without its last byte, or with it where it belongs to an escape."""
    end = len(piece) - 1
    if end < _STEP:
        return piece
    backslashes = end - len(piece[:end].rstrip(b"\\"))
    return piece if backslashes % 2 else piece[:end]


def is_deep(brackets: bytes) -> bool:
    """Whether more than MAX_DEPTH pairs stand within each other: each round takes the innermost away."""
    if len(brackets) <= 2 * MAX_DEPTH:
        return False
    for _ in range(MAX_DEPTH):
        left = brackets.replace(b"[]", b"")
        if len(left) == len(brackets):
            break  # nothing left, or no pairs: no JSON
        brackets = left
    return b"[]" in brackets

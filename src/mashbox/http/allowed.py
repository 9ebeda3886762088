"""The names a server answers to, and the web pages that may use it. Pure.

Any IP address is answered to: rebinding, where a page's own name is made to lead here, needs a name. So the
outer address of a tunnel or a container works without an option.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mashbox.errors import ConfigError

_NAME = b"abcdefghijklmnopqrstuvwxyz0123456789.-_"
_SCHEME = b"abcdefghijklmnopqrstuvwxyz0123456789+-."
_DEFAULT_PORTS = {"http": 80, "https": 443}
_LONGEST_NAME = 253
_LOCAL = "localhost"


class Address(NamedTuple):
    """A host and, if it was written, a port. Names are in lower case, IPv6 addresses without brackets."""

    name: str
    port: int | None
    literal: bool
    """Whether it is an IP address."""


class Origin(NamedTuple):
    """Where a web page comes from. `port` is the scheme's own where none was written."""

    scheme: str
    name: str
    port: int | None


def parse_address(text: bytes) -> Address | None:
    """A Host header's value: `name`, `name:80`, `1.2.3.4:80`, `[::1]:80`. None: it is none."""
    if text.startswith(b"["):
        inner, closed, rest = text[1:].partition(b"]")
        name = literal = _ip(inner, 6) if closed else None
    else:
        inner, colon, port = text.lower().partition(b":")
        rest = colon + port
        literal = _ip(inner, 4)
        name = literal or _plain_name(inner)
    if name is None or not _is_port(rest):
        return None
    return Address(name, int(rest[1:]) if len(rest) > 1 else None, literal is not None)


def _ip(text: bytes, version: int) -> str | None:
    if version == 4 and not text[-1:].isdigit():
        return None  # by far the most names
    try:
        found = ipaddress.ip_address(text.decode("ascii"))
    except ValueError:
        return None
    return found.compressed if found.version == version else None


def _plain_name(text: bytes) -> str | None:
    text = text.removesuffix(b".")
    if not text or len(text) > _LONGEST_NAME or text.translate(None, _NAME):
        return None
    return text.decode("ascii")


def _is_port(rest: bytes) -> bool:
    """Whether nothing, `:` or `:` and a port stands behind the name."""
    if rest in (b"", b":"):
        return True
    return rest[:1] == b":" and rest[1:].isdigit() and len(rest) <= 6 and int(rest[1:]) < 65536


def parse_origin(text: bytes) -> Origin | None:
    """An Origin header's value: `https://chat.example.com`. None: it is none, such as `null`."""
    scheme, found, rest = text.lower().partition(b"://")
    address = parse_address(rest) if found else None
    if address is None or not scheme or scheme.translate(None, _SCHEME):
        return None
    return origin_at(scheme.decode("ascii"), address)


def origin_at(scheme: str, address: Address) -> Origin:
    """The origin of pages that come from this address."""
    port = _DEFAULT_PORTS.get(scheme) if address.port is None else address.port
    return Origin(scheme, address.name, port)


@dataclass(frozen=True, slots=True)
class Allowed:
    """Host names and origins, beside this machine's own names and the server's own pages."""

    names: frozenset[str] = frozenset({_LOCAL})
    endings: tuple[str, ...] = (f".{_LOCAL}",)
    """Of names whose subdomains count; each begins with a dot."""
    origins: frozenset[Origin] = frozenset()
    any_origin: bool = False

    def answers_to(self, address: Address) -> bool:
        """Whether a request may name the server so."""
        return address.literal or address.name in self.names or address.name.endswith(self.endings)

    def welcomes(self, origin: Origin) -> bool:
        """Whether pages from elsewhere may use the server."""
        return self.any_origin or origin in self.origins


def allow(host: str, hosts: Sequence[str], origins: Sequence[str], *, keyed: bool) -> Allowed:
    """What the options allow: --host, each --allow-host and each --allow-origin.

    `.example.com` and `*.example.com` stand for every name that ends so, not for `example.com` itself.
    Raises ConfigError for what is no host or origin, and for `*` as origin on a server without keys.
    """
    if "*" in origins and not keyed:
        raise ConfigError("--allow-origin '*' lets every web page in, so it needs keys: see --api-key-file.")
    own = parse_address(_ascii(host))
    names, endings = {_LOCAL} | ({own.name} if own else set()), {f".{_LOCAL}"}
    for text in hosts:
        name = _host(text)
        (endings if name.startswith(".") else names).add(name)
    pages = frozenset(_origin(text) for text in origins if text != "*")
    return Allowed(frozenset(names), tuple(sorted(endings)), pages, "*" in origins)


def _host(text: str) -> str:
    below = text.startswith((".", "*."))
    address = parse_address(_ascii(text.removeprefix("*").removeprefix(".")))
    if address is None or address.name.startswith(".") or (below and address.literal):
        raise ConfigError(
            f"--allow-host {text!r} is no host; use box.example.com, or .example.com for all names below."
        )
    return f".{address.name}" if below else address.name


def _origin(text: str) -> Origin:
    origin = parse_origin(_ascii(text.removesuffix("/")))
    if origin is None:
        raise ConfigError(f"--allow-origin {text!r} is no origin; use one such as https://chat.example.com.")
    return origin


def _ascii(text: str) -> bytes:
    """As browsers send it: names in other scripts in their ASCII form."""
    if text.isascii():
        return text.encode()
    scheme, found, rest = text.rpartition("://")
    try:
        return f"{scheme}{found}".encode("ascii") + rest.encode("idna")
    except UnicodeError:
        return b""

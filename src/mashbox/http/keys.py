"""API keys: a file of them, one in the environment, and whose each of them is.

A key file has one key a line, and after white space the name of its tenant, if it has one. A `#` that begins
a word begins a comment; elsewhere it is part of the word.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import shlex
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mashbox.config import API_KEY_VARIABLE
from mashbox.errors import ConfigError

MOST_NAME = 64
"""Characters of a tenant's name."""
MOST_FILE_BYTES = 2**20
OTHERS = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH
"""Rights that nobody but a key file's owner may have."""
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Key:
    """One key as it is written, and its tenant."""

    text: bytes
    tenant: str


class KeyRing:
    """The keys of one server. Pure; keeps digests only, so that no key can be shown by mistake."""

    def __init__(self, keys: Iterable[Key]) -> None:
        keys = tuple(keys)
        tenants = {_digest(key.text): key.tenant for key in keys}
        for key in keys:  # after all others: what is one key in UTF-8 may be another in Latin-1
            tenants.setdefault(_digest(_latin1(key.text)), key.tenant)
        self._tenants = tuple(tenants.items())
        self.count = len({key.text for key in keys})

    def tenant(self, sent: bytes) -> str | None:
        """Whose key this is, or None; `sent` as it came in the header. Takes the same time for any key."""
        digest = _digest(sent)
        found = None
        for known, tenant in self._tenants:
            if hmac.compare_digest(known, digest):
                found = tenant
        return found


class Keys:
    """The keys in force: those of the file and the one of the environment. None: no key is asked for."""

    def __init__(self, file: Path | None = None, variable: bytes = b"") -> None:
        """Raises ConfigError; an empty `variable` counts as not set."""
        self.file = file
        self._variable = variable
        self.ring = self._read()

    def reload(self) -> None:
        """Read the file again. Raises ConfigError, and then the keys stay as they were."""
        self.ring = self._read()

    def _read(self) -> KeyRing | None:
        keys = [] if self.file is None else parse_keys(read_key_file(self.file), str(self.file))
        named = {key.text for key in keys}
        if self._variable and self._variable not in named:  # the file may give it a name
            keys.append(variable_key(self._variable))
        return KeyRing(keys) if keys else None


def own_tenant(key: bytes) -> str:
    """The tenant of a key without a name. It may be logged: the key cannot be told from it."""
    return f"key-{_digest(key).hex()[:8]}"


def variable_key(value: bytes) -> Key:
    """The key that MASHBOX_API_KEY holds. Raises ConfigError when it could not be sent."""
    if not _can_be_sent(value):
        raise ConfigError(f"{API_KEY_VARIABLE} must be one key, without white space and control characters.")
    return Key(value, own_tenant(value))


def parse_keys(content: bytes, file: str) -> list[Key]:
    """The keys of a file. Raises ConfigError with the file and the line, and never with what stands there."""
    keys: dict[bytes, Key] = {}
    owners: dict[str, bytes | None] = {}
    for number, line in enumerate(content.removeprefix(_BOM).splitlines(), 1):
        words = _words(line)
        if not words:
            continue
        where = f"{file}, line {number}"
        key = _parse_line(words, where)
        if keys.setdefault(key.text, key) != key:
            raise ConfigError(f"{where}: this key stands in the file already, for another tenant.")
        owner = key.text if len(words) == 1 else None
        if owners.setdefault(key.tenant, owner) != owner:
            raise ConfigError(f"{where}: this tenant is that of a key without a name; give it another name.")
    if not keys:
        raise ConfigError(f"{file} has no key; write one on a line.")
    return list(keys.values())


def _words(line: bytes) -> list[bytes]:
    words = line.replace(b"\t", b" ").split(b" ")
    words = [word for word in words if word]
    comment = next((place for place, word in enumerate(words) if word.startswith(b"#")), len(words))
    return words[:comment]


def _parse_line(words: list[bytes], where: str) -> Key:
    if len(words) > 2:
        raise ConfigError(
            f"{where}: a line is a key and, if it has one, the name of its tenant; this has more."
        )
    if not _can_be_sent(words[0]):
        raise ConfigError(f"{where}: the key has a control character.")
    return Key(words[0], own_tenant(words[0]) if len(words) == 1 else _name(words[1], where))


def _name(word: bytes, where: str) -> str:
    try:
        name = word.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: the tenant's name is not UTF-8.") from None
    if not name.isprintable() or len(name) > MOST_NAME:
        raise ConfigError(
            f"{where}: a tenant's name has at most {MOST_NAME} characters, all of them printable."
        )
    return name


def read_key_file(path: Path) -> bytes:
    """What a key file holds. Raises ConfigError when it cannot be read, or others can read or change it."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise ConfigError(f"The key file {path} is not a file.")
            if found.st_mode & OTHERS:
                raise ConfigError(
                    f"The key file {path} can be read or changed by others; "
                    f"run: chmod 600 {shlex.quote(str(path))}"
                )
            content = file.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"The key file {path} cannot be read: {error.strerror}.") from None
    if len(content) > MOST_FILE_BYTES:
        raise ConfigError(f"The key file {path} is larger than {MOST_FILE_BYTES // 2**20} MiB.")
    return content


def _open_at_once(path: str, flags: int) -> int:
    """A pipe without a writer would otherwise hold the start up for ever."""
    return os.open(path, flags | os.O_NONBLOCK)


def _can_be_sent(key: bytes) -> bool:
    return not any(byte <= 0x20 or byte == 0x7F for byte in key)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _latin1(key: bytes) -> bytes:
    """The key as browsers send it, where they can."""
    try:
        return key.decode().encode("latin-1")
    except UnicodeError:
        return key

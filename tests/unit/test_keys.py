"""http/keys.py: key files, and whose key it is."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from mashbox.errors import ConfigError
from mashbox.http.keys import Key, KeyRing, Keys, own_tenant, parse_keys, read_key_file, variable_key

SECRET = "s3cret"


def ring(content: str | bytes) -> KeyRing:
    return KeyRing(parse_keys(content.encode() if isinstance(content, str) else content, "keys"))


def key_file(folder: Path, content: str, mode: int = 0o600) -> Path:
    file = folder / "keys"
    file.write_text(content)
    file.chmod(mode)
    return file


@pytest.mark.parametrize(
    ("content", "sent", "tenant"),
    [
        ("k1", b"k1", own_tenant(b"k1")),
        ("k1\n", b"k1", own_tenant(b"k1")),
        ("k1 red\nk2 red\n", b"k2", "red"),
        ("k1\tred", b"k1", "red"),
        ("  k1 \t  red  \r\nk2\r\n", b"k1", "red"),
        ("  k1 \t  red  \r\nk2\r\n", b"k2", own_tenant(b"k2")),
        ("# a comment\n\n   # another\nk1 red # who it is\n", b"k1", "red"),
        ("k1 # who it is", b"k1", own_tenant(b"k1")),
        ("k#1 r#d", b"k#1", "r#d"),
        ("k1 red\nk1 red", b"k1", "red"),
        ("\ufeffk1 red", b"k1", "red"),
        ("k1 grün", b"k1", "grün"),
        ("schlüssel red", "schlüssel".encode(), "red"),
        ("schlüssel red", "schlüssel".encode("latin-1"), "red"),
        ("鍵 red", "鍵".encode(), "red"),
        (b"\xff\xfe red", b"\xff\xfe", "red"),
        ("é red\nÃ© blue", "é".encode(), "red"),
        ("Ã© blue\né red", "é".encode(), "red"),
        ("k1 " + "n" * 64, b"k1", "n" * 64),
        ("k1", b"k2", None),
        ("k1", b"k", None),
        ("k1", b"k11", None),
        ("k1", b"K1", None),
        ("k1", b"", None),
        ("k1 red", b"red", None),
        ("k1 red", b"k1 red", None),
        ("# k1\nk2", b"k1", None),
    ],
)
def test_whose_key_it_is(content: str | bytes, sent: bytes, tenant: str | None) -> None:
    assert ring(content).tenant(sent) == tenant


@pytest.mark.parametrize(
    ("content", "line", "told"),
    [
        (f"k1\n{SECRET} red green\n", 2, "more"),
        (f"{SECRET}\x07\n", 1, "control character"),
        (f"{SECRET}\x7f\n", 1, "control character"),
        (f"k1\n\n#\n{SECRET}\x00 red", 4, "control character"),
        (f"{SECRET} red\nk1\n{SECRET} blue", 3, "another tenant"),
        (f"{SECRET} red\n{SECRET}", 2, "another tenant"),
        (f"{SECRET} {own_tenant(b'k1')}\nk1", 2, "key without a name"),
        (f"k1\n{SECRET} {own_tenant(b'k1')}", 2, "key without a name"),
        (f"{SECRET} {'n' * 65}", 1, "64 characters"),
        (f"{SECRET} n\x1b[0m", 1, "printable"),
        (f"{SECRET} n\u2028m", 1, "printable"),
        (f"{SECRET} ".encode() + b"\xff", 1, "UTF-8"),
    ],
)
def test_a_bad_line_is_told_by_its_number_and_not_shown(content: str | bytes, line: int, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ring(content)
    message = str(caught.value)
    assert message.startswith(f"keys, line {line}: ")
    assert told in message
    assert SECRET not in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("content", ["", "\n\n", "# only this\n", "\ufeff"])
def test_a_file_without_a_key_is_refused(content: str) -> None:
    with pytest.raises(ConfigError, match="keys has no key"):
        ring(content)


def test_a_key_without_a_name_has_a_tenant_that_does_not_show_it() -> None:
    assert own_tenant(b"k1") == "key-" + hashlib.sha256(b"k1").hexdigest()[:8]


def test_every_key_is_compared_whichever_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []

    def compare(known: bytes, sent: bytes) -> bool:
        compared.append((len(known), len(sent)))
        return known == sent

    keys = ring("a\nbb\nccc x\n")
    monkeypatch.setattr("mashbox.http.keys.hmac.compare_digest", compare)
    for sent in (b"a", b"ccc", b"", b"none" * 1000):
        compared.clear()
        keys.tenant(sent)
        assert compared == [(32, 32)] * 3


def test_a_ring_shows_no_key() -> None:
    held = ring(f"{SECRET} red")
    assert SECRET not in repr(held) + repr(vars(held))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o620, 0o602, 0o644])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    file = key_file(tmp_path, SECRET, mode)
    with pytest.raises(ConfigError) as caught:
        read_key_file(file)
    assert str(caught.value).endswith(f"run: chmod 600 {file}")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_file_of_ones_own_is_read(tmp_path: Path, mode: int) -> None:
    assert read_key_file(key_file(tmp_path, SECRET, mode)) == SECRET.encode()


def test_what_is_no_readable_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "large").write_bytes(b"k" * (2**20 + 1))
    (tmp_path / "large").chmod(0o600)
    for name, told in (
        ("none", "No such file"),
        (".", "Is a directory"),
        ("pipe", "not a file"),
        ("large", "1 MiB"),
    ):
        with pytest.raises(ConfigError, match=told) as caught:
            read_key_file(tmp_path / name)
        assert len(str(caught.value).splitlines()) == 1


def test_a_file_without_rights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("mashbox.http.keys.os.open", refuse)
    with pytest.raises(ConfigError, match="cannot be read: Permission denied"):
        read_key_file(tmp_path / "keys")


@pytest.mark.parametrize("value", [b"a b", b" ", b"a\n", b"\x00", b"a\tb", b"a\x7f"])
def test_a_variable_that_is_no_key_is_refused(value: bytes) -> None:
    with pytest.raises(ConfigError, match="MASHBOX_API_KEY"):
        Keys(None, value)


def test_without_file_and_variable_there_are_no_keys() -> None:
    assert Keys().ring is None
    assert Keys(None, b"").ring is None


def test_file_and_variable_both_count(tmp_path: Path) -> None:
    keys = Keys(key_file(tmp_path, "k1 red\nk2 blue"), b"k3")
    assert keys.ring is not None
    assert [keys.ring.tenant(key) for key in (b"k1", b"k3")] == ["red", own_tenant(b"k3")]
    assert variable_key(b"k3") == Key(b"k3", own_tenant(b"k3"))
    named = Keys(keys.file, b"k2").ring
    assert named is not None
    assert named.tenant(b"k2") == "blue"


def test_reading_again_takes_new_keys_or_changes_nothing(tmp_path: Path) -> None:
    file = key_file(tmp_path, "k1 red")
    keys = Keys(file, b"k3")
    file.write_text("k2 red")
    keys.reload()
    ring = keys.ring
    assert ring is not None
    assert [ring.tenant(key) for key in (b"k1", b"k2", b"k3")] == [None, "red", own_tenant(b"k3")]
    for content, mode in (("a b c", 0o600), ("", 0o600), ("k4", 0o644)):
        key_file(tmp_path, content, mode)
        with pytest.raises(ConfigError):
            keys.reload()
        assert keys.ring is ring

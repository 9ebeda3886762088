"""welcome.py: addresses that work, and keys that are named but not shown."""

from __future__ import annotations

import pytest

from mashbox.welcome import ELSEWHERE, url_of, welcome


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("box.lan", "http://box.lan:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("::1", "http://[::1]:80"),
        ("fd00::7", "http://[fd00::7]:80"),
    ],
)
def test_addresses(host: str, url: str) -> None:
    assert url_of(host, 80) == url


def test_without_keys_any_text_will_do() -> None:
    text = welcome("m", 4, 256, "127.0.0.1", 8000, keyed=False)
    assert "m is ready: 4 slots of 256 tokens each." in text
    assert text.count("API_KEY=any") == 2
    assert "Authorization" not in text
    assert "MASHBOX_API_KEY" not in text
    assert ELSEWHERE not in text


def test_with_keys_the_examples_name_the_variable() -> None:
    text = welcome("m", 1, 256, "0.0.0.0", 8000, keyed=True)
    assert "1 slot of 256 tokens." in text
    assert '-H "Authorization: Bearer $MASHBOX_API_KEY"' in text
    assert text.count('API_KEY="$MASHBOX_API_KEY"') == 2
    assert "export MASHBOX_API_KEY=<" in text
    assert f"http://{ELSEWHERE}:8000/v1" in text
    assert "any" not in text.split()

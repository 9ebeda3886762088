"""Arguments of earlier calls, as all chat routes read them."""

from __future__ import annotations

from typing import Any

import pytest

from mashbox.api.tools import arguments_text
from mashbox.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(None, "{}"), ("", "{}"), ('{ "a":1}', '{ "a":1}'), ("no JSON", "no JSON"), ({"b": "ü"}, '{"b":"ü"}')],
)
def test_a_text_stays_and_an_object_becomes_compact(
    arguments: str | dict[str, Any] | None, text: str
) -> None:
    assert arguments_text(arguments, "x") == text


def test_arguments_nested_too_deeply_are_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(InvalidRequestError, match=r"'input\[0\]\.arguments' is nested too deeply") as caught:
        arguments_text(deep, "input[0].arguments")
    assert caught.value.param == "input[0].arguments"

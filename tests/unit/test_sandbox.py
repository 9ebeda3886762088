"""The environment of chat templates: its vocabulary and its limits."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.chat import marked_text, sandbox
from mashbox.chat.shield import Shield
from mashbox.chat.template import ChatTemplate
from mashbox.errors import ConfigError, InvalidRequestError


def render(source: str, **variables: Any) -> str:
    template = ChatTemplate(source, bos="", eos="", control_tokens=("<a>", "<▁b▁>"))
    return "".join(segment.text for segment in template.render((), **variables))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ {'b': '<é\"', 'a': [1, none, true]} | tojson }}", '{"b": "<é\\"", "a": [1, null, true]}'),
        ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}", '{"a": 2, "b": 1}'),
        ("{{ [1, 2] | tojson(separators=(',', ':')) }}", "[1,2]"),
        ("{{ [1] | tojson(indent=1) }}", "[\n 1\n]"),
        ("{{ x | tojson(ensure_ascii=true) }}", '"<\\u2581b\\u2581>\\u00e9\\ud83d\\ude00"'),
        ("{% generation %}{{ 'in' }}{% endgeneration %}side", "inside"),
        (
            "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}"
            "{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "02",
        ),
        ("  {% if true %}\n x\n  {% endif %}\n", " x\n"),
        ("{{ '<b>' }}{{ missing }}", "<b>"),
        ("{{ 'a-b'.split('-')[1].upper() ~ ' x '.strip() }}", "Bx"),
        (
            "{{ x.startswith('<▁b') }} {{ x[:4].rstrip('▁>') }} "
            "{{ [x] | select('equalto', x) | list | length }}",
            "True <▁b 1",
        ),
        ("{% if tools is not none or documents is not none %}tools{% endif %}", ""),
        (
            "{{ 'ab' * 2 + 'c' }} {{ 2 ** 8 }} {{ '%s-%02d' % ('x', 7) }} {{ '%d' | format(3) }}",
            "ababc 256 x-07 3",
        ),
        ("{{ '%s * %s' % (1, 2) }} {{ '{:>4}'.format('a') }} {{ 'a' | center(3) }}", "1 * 2    a  a "),
    ],
)
def test_vocabulary(source: str, expected: str) -> None:
    assert render(source, x="<▁b▁>é😀") == expected


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10**9 }}",
        "{{ [1] * 10**9 }}",
        "{{ 10**(10**9) }}",
        "{% set n = namespace(x=3) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
        "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{% for i in range(10**9) %}{% endfor %}",
        "{% set x = 'a' * 10**6 %}{% for i in range(99) %}{{ x }}{% endfor %}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ '{:1000000000}'.format('') }}",
        "{{ '{:{}}'.format('', 1000000000) }}",
        "{{ 'a'.ljust(10**9) }}",
        "{{ 'a' | center(10**9) }}",
        "{{ 'a' | indent(10**9, true) }}",
        "{{ [1] | tojson(indent=10**9) }}",
        "{{ lipsum(n=10**6) }}",
    ],
)
@pytest.mark.timeout(10)
def test_limits(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_CHARACTERS", 2**20)
    with pytest.raises(InvalidRequestError) as caught:
        render(source)
    assert caught.value.code == "template_error"


SHIELD = Shield.avoiding("<|>", set())
texts = st.text("<|>ab \n", max_size=12)
words = st.text("<|>ab", min_size=1, max_size=3)


@given(texts, words, st.integers(-1, 3))
def test_string_methods_do_as_if_nothing_were_covered(text: str, word: str, count: int) -> None:
    calls: list[tuple[str, tuple[Any, ...]]] = [
        *((name, (word,)) for name in ("split", "rsplit", "partition", "rpartition", "strip", "lstrip")),
        *((name, (word,)) for name in ("rstrip", "removeprefix", "removesuffix", "startswith", "endswith")),
        *((name, (word,)) for name in ("find", "rfind", "count")),
        *((name, ()) for name in ("split", "strip", "upper", "isalnum", "isprintable", "splitlines")),
        *(
            ("split", (word, count)),
            ("rsplit", (word, count)),
            ("replace", (word, "b|")),
            ("split", (None, 1)),
        ),
        *(("replace", (word, "", count)), ("replace", ("", word)), ("startswith", (("<", word),))),
    ]
    for name, args in calls:
        covered = marked_text.call_method(SHIELD, SHIELD.cover(text), name, args, {})
        assert SHIELD.uncover_value(covered) == getattr(text, name)(*args), (name, args)


@given(texts, words)
def test_pieces_keep_their_stand_ins(text: str, word: str) -> None:
    pieces = marked_text.call_method(SHIELD, SHIELD.cover(text), "split", (word,), {})
    assert pieces == [SHIELD.cover(piece) for piece in text.split(word)]


LOOPS = [
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% macro twice(n) %}{% if n %}{{ twice(n - 1) ~ twice(n - 1) }}{% endif %}{% endmacro %}{{ twice(60) }}",
    "{% for a in range(99999) %}{% for b in range(99999) if b < 0 %}{% endfor %}{% endfor %}",
]


@pytest.mark.parametrize("source", LOOPS)
def test_no_template_runs_for_ever(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mashbox.chat.sandbox.MAX_RENDER_S", 0.1)
    with pytest.raises(ConfigError, match="does not end"):
        render(source)
    with pytest.raises(InvalidRequestError, match="it runs for more than"):
        render("{% if spin %}" + source + "{% endif %}", spin=True)


def test_loops_keep_what_they_know() -> None:
    source = (
        "{% for a in range(3) %}{{ loop.index }}{{ loop.length }}{{ loop.last }} {% else %}none{% endfor %}"
    )
    assert render(source) == "13False 23False 33True "
    assert render("{% for a in [] %}x{% else %}none{% endfor %}") == "none"

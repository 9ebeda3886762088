"""chat/formats: what each family's reader makes of answers, whole and in any pieces."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mashbox.chat.formats.choose import FORMAT_NAMES
from mashbox.chat.formats.json_text import MAX_DEPTH
from mashbox.chat.types import Block, Call, Text
from tests.unit.formats_support import read, reader

HELLO = Text("Hello!")
PING = Call("ping", "{}")
PARIS = Call("get_weather", '{"city": "Paris"}')
NASTY = '{"text": "a \\"b\\" \\\\ </tool_call>\\n<|tool_call_end|> {[ ] \\u00e9 é 漢字 ```  "}'
NOTE = Call("note", NASTY)

Case = tuple[str, list[Block]]


def hermes(arguments: str, name: str = "note") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


HERMES_PARIS = hermes('{"city": "Paris"}', "get_weather")
HERMES: dict[str, Case] = {
    "text": ("Hello!", [HELLO]),
    "text keeps its white space": (" \n a  b \n ", [Text(" \n a  b \n ")]),
    "a call": (HERMES_PARIS, [PARIS]),
    "text before a call": (f"Hello!\n\n{HERMES_PARIS}", [HELLO, PARIS]),
    "text after a call": (f"{HERMES_PARIS}\n\nHello!\n", [PARIS, Text("Hello!\n")]),
    "calls in a row": (f"{HERMES_PARIS}\n{hermes(NASTY)}\n", [PARIS, NOTE]),
    "text between calls": (f"{HERMES_PARIS}\nHello!\n{HERMES_PARIS}", [PARIS, HELLO, PARIS]),
    "arguments are kept as they are": (hermes(NASTY), [NOTE]),
    "odd numbers and spaces": (
        hermes('{ "text":1e400 ,"b" : -0.10, "b":100000000000000000000000 }'),
        [Call("note", '{ "text":1e400 ,"b" : -0.10, "b":100000000000000000000000 }')],
    ),
    "parameters": (
        '<tool_call>{"name": "get_weather", "parameters": {"city": "Paris"}}</tool_call>',
        [PARIS],
    ),
    "arguments before the name": (
        '<tool_call>{"arguments": {"city": "Paris"}, "id": 7, "name": "get_weather"}</tool_call>',
        [PARIS],
    ),
    "arguments in a string": (hermes('"{\\"city\\": \\"Paris\\"}"', "get_weather"), [PARIS]),
    "an empty string": (hermes('""', "ping"), [PING]),
    "a blank string": (hermes('" "', "ping"), [PING]),
    "a list": ('<tool_call>[{"name": "ping"}, {"name": "ping"}]</tool_call>', [PING, PING]),
    "null": (hermes("null", "ping"), [PING]),
    "no arguments": ('<tool_call>{"name": "ping"}</tool_call>', [PING]),
    "no closer at the end": (HERMES_PARIS.removesuffix("</tool_call>"), [PARIS]),
    "half a closer at the end": (HERMES_PARIS.removesuffix("call>"), [PARIS]),
    "no closer before the next call": (
        HERMES_PARIS.removesuffix("</tool_call>") + HERMES_PARIS,
        [PARIS, PARIS],
    ),
    "no white space": (HERMES_PARIS.replace("\n", ""), [PARIS]),
}
HERMES_TEXTS = (
    "<tool_call>",
    "<tool_cal",
    " <tool_call> ",
    "see <tool_call>, the opener",
    hermes("{}", "unknown"),
    hermes("[]"),
    hermes("5"),
    hermes('"[]"'),
    hermes('"{\\"a\\": \\"\\ud800\\"}"'),
    hermes('{"text": NaN}'),
    hermes('{"text": -Infinity}'),
    hermes('{"text": 01}'),
    hermes('{"text": "a", }'),
    hermes('{"text": "a"'),
    hermes('{"text": "a\nb"}'),
    hermes("{'text': 'a'}"),
    hermes('{"text": ' + "[" * 500 + "]" * 500 + "}"),
    hermes('"' + "[" * 100_000 + '"'),
    hermes('"{\\"a\\": ' + "[" * 150 + "]" * 150 + '}"'),
    '<tool_call>[{"name": "ping"}, {"name": "unknown"}]</tool_call>',
    '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
    '<tool_call>{"arguments": {}}</tool_call>',
    '<tool_call>["name", "arguments"]</tool_call>',
    '<tool_call>{"name": "ping"} and more</tool_call>',
    '<tool_call>{"name": "ping", "arguments": {}',
)


def xml(name: str, *parameters: tuple[str, str]) -> str:
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


XML_PARIS = xml("get_weather", ("city", "Paris"))
TRICKY = 'if a < b:\n\n    "x" </parameter> x </function> \\ é </tool_call>\n'
QWEN3_CODER: dict[str, Case] = {
    "text": ("Hello!", [HELLO]),
    "a call": (XML_PARIS, [PARIS]),
    "text around calls": (f"Hello!\n\n{XML_PARIS}\n{xml('ping')}\n Hello!", [HELLO, PARIS, PING, HELLO]),
    "no outer tags": (XML_PARIS.replace("<tool_call>\n", "").replace("\n</tool_call>", ""), [PARIS]),
    "no outer closer": (f"{XML_PARIS.removesuffix('</tool_call>')}", [PARIS]),
    "no outer opener after text": (
        f"Hello!\n\n{XML_PARIS.removeprefix('<tool_call>').strip()}",
        [HELLO, PARIS],
    ),
    "no closer of the last value": (XML_PARIS.replace("</parameter>\n", ""), [PARIS]),
    "no line breaks": (XML_PARIS.replace("\n", ""), [PARIS]),
    "text is kept as it is": (
        xml("note", ("text", TRICKY.replace("</parameter> </function>", "</parameter> x"))),
        [
            Call(
                "note",
                json.dumps(
                    {"text": TRICKY.replace("</parameter> </function>", "</parameter> x")}, ensure_ascii=False
                ),
            )
        ],
    ),
    "types": (
        xml(
            "get_weather",
            ("city", "5"),
            ("days", " 3 "),
            ("exact", "True"),
            ("where", '{"lat": 1.50}'),
            ("tags", '["a", "b"]'),
            ("unit", "C"),
            ("limit", "null"),
        ),
        [
            Call(
                "get_weather",
                '{"city": "5", "days": 3, "exact": true, "where": {"lat": 1.50}, "tags": ["a", "b"],'
                ' "unit": "C", "limit": null}',
            )
        ],
    ),
    "what does not fit is a string": (
        xml("get_weather", ("days", "three"), ("exact", "maybe"), ("where", "{"), ("limit", "NaN")),
        [Call("get_weather", '{"days": "three", "exact": "maybe", "where": "{", "limit": "NaN"}')],
    ),
    "not declared": (
        xml("ping", ("a", "5"), ("b", '{"c": 1}'), ("d", "[1]")),
        [Call("ping", '{"a": "5", "b": {"c": 1}, "d": [1]}')],
    ),
    "line breaks of the value": (xml("note", ("text", "\n\na\n")), [Call("note", '{"text": "\\n\\na\\n"}')]),
    "an empty value": (xml("note", ("text", "")), [Call("note", '{"text": ""}')]),
    "said twice": (xml("note", ("text", "a"), ("text", "b")), [Call("note", '{"text": "b"}')]),
}
QWEN3_CODER_TEXTS = (
    "<tool_call>",
    "<tool_call>\n<function=",
    "<function=unknown>\n</function>",
    xml("unknown", ("text", "a")),
    xml("note", ("text", "a")).replace("</function>", ""),
    XML_PARIS.replace("</parameter>", "") + "?",
    xml("ping", ("a", "b"), ("c", "d")).replace("</parameter>\n</function>", ""),
    f"Such as {XML_PARIS.removeprefix('<tool_call>').strip()}",
    XML_PARIS.replace("<parameter=", "<argument="),
    "<tool_call>\nget_weather\n</tool_call>",
    "a < b and <function of x>",
)

LLAMA_PARIS = '{"name": "get_weather", "parameters": {"city": "Paris"}}'
LLAMA3: dict[str, Case] = {
    "text": (" Hello! \n", [Text(" Hello! \n")]),
    "a call": (LLAMA_PARIS, [PARIS]),
    "the tag": (f"<|python_tag|>{LLAMA_PARIS}", [PARIS]),
    "white space": (f"\n <|python_tag|> {LLAMA_PARIS} \n", [PARIS]),
    "several": (f'{LLAMA_PARIS}; {{"name": "ping"}};{LLAMA_PARIS}\n', [PARIS, PING, PARIS]),
    "text after": (f"{LLAMA_PARIS}\n\nHello!", [PARIS, HELLO]),
    "no call after a semicolon": (f"{LLAMA_PARIS}; Hello!", [PARIS, Text("; Hello!")]),
    "arguments are kept as they are": (f'{{"name": "note", "arguments": {NASTY}}}', [NOTE]),
}
LLAMA3_TEXTS = (
    f"Hello! {LLAMA_PARIS}",
    f"Hello! <|python_tag|>{LLAMA_PARIS}",
    "<|python_tag|>print(5)",
    '{"answer": 5}',
    '{"name": "unknown", "parameters": {}}',
    "{" * 500,
    "{",
    "<|python",
)

MISTRAL: dict[str, Case] = {
    "text": ("Hello [TOOL]", [Text("Hello [TOOL]")]),
    "a list": ('[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}}]', [PARIS]),
    "a list of two": (
        f'Hello!\n[TOOL_CALLS] [{{"name": "ping", "id": "a1"}}, {{"name": "note", "arguments": {NASTY}}}]\n',
        [HELLO, PING, NOTE],
    ),
    "a lone object": ('[TOOL_CALLS]{"name": "ping", "arguments": {}}', [PING]),
    "named": ('[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}', [PARIS]),
    "named twice": (f"Hello![TOOL_CALLS]note[ARGS]{NASTY}[TOOL_CALLS]ping[ARGS]{{}}", [HELLO, NOTE, PING]),
    "no mark before arguments": ('[TOOL_CALLS]get_weather{"city": "Paris"}', [PARIS]),
    "with an id": ('[TOOL_CALLS]get_weather[CALL_ID]abc123xyz[ARGS] {"city": "Paris"}', [PARIS]),
}
MISTRAL_TEXTS = (
    "[TOOL_CALLS]",
    "[TOOL_CALLS][]",
    '[TOOL_CALLS][{"name": "ping"}, {"name": "unknown"}]',
    '[TOOL_CALLS][{"name": "ping"}',
    "[TOOL_CALLS]unknown[ARGS]{}",
    "[TOOL_CALLS]ping[OTHER]{}",
    "[TOOL_CALLS]ping[ARGS][]",
    "[TOOL_CALLS]ping[ARGS]{,}",
    "[TOOL_CALLS]ping",
)

BEGIN_ALL, END_ALL = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"  # noqa: RUF001
BEGIN, SEPARATOR, END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"  # noqa: RUF001


def fenced(name: str, arguments: str) -> str:
    return f"{BEGIN}function{SEPARATOR}{name}\n```json\n{arguments}\n```{END}"


def bare(name: str, arguments: str) -> str:
    return f"{BEGIN}{name}{SEPARATOR}{arguments}{END}"


DEEPSEEK: dict[str, Case] = {
    "text": ("Hello!", [HELLO]),
    "fenced": (f"{BEGIN_ALL}{fenced('note', NASTY)}{END_ALL}", [NOTE]),
    "fenced twice": (
        f"Hello!\n{BEGIN_ALL}{fenced('note', NASTY)}\n{fenced('ping', '{}')}{END_ALL}\n",
        [HELLO, NOTE, PING],
    ),
    "bare": (f"{BEGIN_ALL}{bare('note', NASTY)}{END_ALL}", [NOTE]),
    "bare twice": (
        f"Hello!{BEGIN_ALL}{bare('note', NASTY)}{bare('ping', '{}')}{END_ALL}",
        [HELLO, NOTE, PING],
    ),
    "no marks around all": (bare("ping", "{}"), [PING]),
    "no end of all": (BEGIN_ALL + fenced("ping", "{}"), [PING]),
    "no end": (BEGIN_ALL + bare("ping", "{}").removesuffix(END), [PING]),
    "one that is none": (
        f"{BEGIN_ALL}{bare('ping', '{}')}{bare('unknown', '{}')}{bare('ping', '{}')}{END_ALL}",
        [PING, Text(bare("unknown", "{}")), PING],
    ),
}
DEEPSEEK_TEXTS = (
    BEGIN_ALL,
    BEGIN_ALL + END_ALL,
    f"{BEGIN_ALL}{bare('ping', '[]')}{END_ALL}",
    f"{BEGIN_ALL}{fenced('unknown', '{}')}{END_ALL}",
    f"{BEGIN_ALL}{BEGIN}ping{END}{END_ALL}",
    f"{BEGIN_ALL}{fenced('ping', '{}').replace('```' + END, END)}{END_ALL}",
    "<｜tool",  # noqa: RUF001
)


def glm(name: str, *arguments: tuple[str, str], gap: str = "\n") -> str:
    body = "".join(
        f"<arg_key>{key}</arg_key>{gap}<arg_value>{value}</arg_value>{gap}" for key, value in arguments
    )
    return f"<tool_call>{name}{gap}{body}</tool_call>"


GLM_TRICKY = ' a\n</arg_value> "b" <arg_key>\n\n</tool_call> é\n'
GLM: dict[str, Case] = {
    "text": ("Hello!", [HELLO]),
    "a call": (glm("get_weather", ("city", "Paris")), [PARIS]),
    "no line breaks": (glm("get_weather", ("city", "Paris"), gap=""), [PARIS]),
    "spaces": (glm("get_weather", ("city", "Paris"), gap=" "), [PARIS]),
    "no arguments": (glm("ping"), [PING]),
    "several": (f"Hello!\n{glm('ping')}\n{glm('get_weather', ('city', 'Paris'))}\n", [HELLO, PING, PARIS]),
    "text is kept as it is": (
        glm("note", ("text", GLM_TRICKY)),
        [Call("note", json.dumps({"text": GLM_TRICKY}, ensure_ascii=False))],
    ),
    "types": (
        glm("get_weather", ("days", "3"), ("exact", "false"), ("limit", "2.50"), ("tags", "[]"), ("x", "7")),
        [Call("get_weather", '{"days": 3, "exact": false, "limit": 2.50, "tags": [], "x": "7"}')],
    ),
}
GLM_TEXTS = (
    "<tool_call>",
    glm("unknown"),
    "<tool_call>ping",
    "<tool_call>ping<arg_key>a</arg_key></tool_call>",
    "<tool_call>ping<arg_key>a</arg_key><arg_value>b</tool_call>",
    '<tool_call>{"name": "ping"}</tool_call>',
)

LFM2: dict[str, Case] = {
    "text": ("Hello!", [HELLO]),
    "a call": ('<|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>', [PARIS]),
    "several": (
        "Hello! <|tool_call_start|>[ping(), get_weather( city = 'Paris', ), ]<|tool_call_end|>Hello!",
        [HELLO, PING, PARIS, HELLO],
    ),
    "values": (
        "<|tool_call_start|>[ping(a=[1, -2.50, 1e3], b={'c': (True, None), \"d\": false}, e=null)]"
        "<|tool_call_end|>",
        [Call("ping", '{"a": [1, -2.50, 1e3], "b": {"c": [true, null], "d": false}, "e": null}')],
    ),
    "strings": (
        "<|tool_call_start|>[ping(a='it\\'s \"x\"', b=\"\\u00e9 \\/ <|tool_call_end|> )]\", c='\\x41\\d\n')]"
        "<|tool_call_end|>",
        [Call("ping", '{"a": "it\'s \\"x\\"", "b": "é / <|tool_call_end|> )]", "c": "A\\\\d\\n"}')],
    ),
    "no closer": ("<|tool_call_start|>[ping()]", [PING]),
    "as JSON": (
        '<|tool_call_start|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]<|tool_call_end|>',
        [PARIS],
    ),
}
LFM2_TEXTS = (
    "<|tool_call_start|>",
    "<|tool_call_start|>[]<|tool_call_end|>",
    "<|tool_call_start|>[ping(), unknown()]<|tool_call_end|>",
    "<|tool_call_start|>[ping(1)]<|tool_call_end|>",
    "<|tool_call_start|>[ping(a=b)]<|tool_call_end|>",
    "<|tool_call_start|>[ping(a=01)]<|tool_call_end|>",
    "<|tool_call_start|>[ping(a={1: 2})]<|tool_call_end|>",
    "<|tool_call_start|>[ping(a=__import__('os'))]<|tool_call_end|>",
    "<|tool_call_start|>[ping(]<|tool_call_end|>",
    f"<|tool_call_start|>[ping(a={'[' * 500}{']' * 500})]<|tool_call_end|>",
    "<|tool_call_start|>[ping()] or so<|tool_call_end|>",
)


def harmony_call(arguments: str, name: str = "note") -> str:
    return f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}<|call|>"


HARMONY: dict[str, Case] = {
    "plain text": ("Hello!", [HELLO]),
    "final": ("<|channel|>final<|message|>Hello!", [HELLO]),
    "final with an end": ("<|channel|>final<|message|> Hello! \n<|return|>", [Text(" Hello! \n")]),
    "a call": (harmony_call(NASTY), [NOTE]),
    "after thinking": (f"<|start|>assistant{harmony_call(NASTY)}", [NOTE]),
    "no end": (harmony_call(NASTY).removesuffix("<|call|>"), [NOTE]),
    "recipient first": (" to=functions.ping<|channel|>commentary json<|message|>{}<|call|>", [PING]),
    "recipient in the start": (
        "<|start|>assistant to=functions.ping<|channel|>commentary<|message|> {} ",
        [PING],
    ),
    "a preamble": (
        f"<|channel|>commentary<|message|>Hello!<|end|><|start|>assistant{harmony_call(NASTY)}",
        [HELLO, NOTE],
    ),
    "no namespace": (harmony_call(NASTY).replace("functions.", ""), [NOTE]),
    "two calls": (f"{harmony_call(NASTY)}<|start|>assistant{harmony_call('{}', 'ping')}", [NOTE, PING]),
    "analysis is for nobody": (
        "<|channel|>analysis to<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hello!",
        [HELLO],
    ),
    "the end within a header": ("Hello!<|end|><|start|>assistant<|channel|>fin", [HELLO]),
    "the end within a mark": ("<|start|>assistant<|chan", []),
    "a start and no more": ("<|start|>assistant", []),
    "a header that is none": ("<|channel|>final\nHello!", [Text("<|channel|>final\nHello!")]),
    "a header without its mark": ("<|channel|>final Hello you!", [Text("<|channel|>final Hello you!")]),
}
HARMONY_TEXTS = (
    harmony_call("{}", "unknown"),
    harmony_call("[]"),
    harmony_call("{} and more"),
    harmony_call('{"text": "'),
    harmony_call("{}").replace("functions.", "browser."),
    "to=functions.ping, I think",
)

TABLES: dict[str, dict[str, Case]] = {
    "hermes": HERMES,
    "plain": HERMES,
    "qwen3-coder": QWEN3_CODER,
    "llama3": LLAMA3,
    "mistral": MISTRAL,
    "mistral-args": MISTRAL,
    "deepseek-v3": DEEPSEEK,
    "deepseek-v3.1": DEEPSEEK,
    "glm": GLM,
    "lfm2": LFM2,
    "harmony": HARMONY,
}
TEXTS: dict[str, tuple[str, ...]] = {
    "hermes": HERMES_TEXTS,
    "plain": HERMES_TEXTS,
    "qwen3-coder": QWEN3_CODER_TEXTS,
    "llama3": LLAMA3_TEXTS,
    "mistral": MISTRAL_TEXTS,
    "mistral-args": MISTRAL_TEXTS,
    "deepseek-v3": DEEPSEEK_TEXTS,
    "deepseek-v3.1": DEEPSEEK_TEXTS,
    "glm": GLM_TEXTS,
    "lfm2": LFM2_TEXTS,
    "harmony": HARMONY_TEXTS,
}
CASES = [
    pytest.param(name, text, expected, id=f"{name}-{case}")
    for name, table in TABLES.items()
    for case, (text, expected) in table.items()
]
NO_CALLS = [
    pytest.param(name, text, id=f"{name}-{number}")
    for name, texts in TEXTS.items()
    for number, text in enumerate(texts)
]


def test_every_format_has_its_tables() -> None:
    assert set(TABLES) == set(TEXTS) == set(FORMAT_NAMES)


@pytest.mark.parametrize(("name", "text", "expected"), CASES)
@settings(max_examples=20)
@given(data=st.data())
def test_reads(name: str, text: str, expected: list[Block], data: st.DataObject) -> None:
    assert list(read(reader(name), [text])) == expected
    assert list(read(reader(name), cut(data, text))) == expected


@pytest.mark.parametrize(("name", "text"), NO_CALLS)
def test_what_is_no_call_is_the_text_it_was(name: str, text: str) -> None:
    assert list(read(reader(name), [text])) == [Text(text)]
    assert list(read(reader(name), list(text))) == [Text(text)]


@pytest.mark.parametrize(("name", "text", "expected"), CASES)
def test_character_by_character(name: str, text: str, expected: list[Block]) -> None:
    assert list(read(reader(name), list(text))) == expected


@pytest.mark.parametrize(("name", "text", "expected"), CASES)
def test_without_tools_nothing_is_a_call(name: str, text: str, expected: list[Block]) -> None:
    blocks = read(reader(name, ()), [text])
    assert not any(isinstance(block, Call) for block in blocks)
    if name != "harmony":
        assert "".join(block.text for block in blocks if isinstance(block, Text)) == text


@pytest.mark.parametrize("name", FORMAT_NAMES)
@given(data=st.data())
def test_scraps_in_any_cut_give_the_same(name: str, data: st.DataObject) -> None:
    scraps = [text for text, _ in TABLES[name].values()] + list(TEXTS[name])
    pieces = data.draw(st.lists(st.sampled_from([s for s in scraps if len(s) < 1000]), max_size=4))
    text = "".join(piece[: data.draw(st.integers(0, len(piece)))] for piece in pieces)
    assert read(reader(name), [text]) == read(reader(name), cut(data, text))
    if name != "harmony":
        assert read(reader(name, ()), cut(data, text)) == ((Text(text),) if text else ())


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_a_finished_reader_begins_anew(name: str) -> None:
    text, expected = TABLES[name][next(case for case in TABLES[name] if "text" not in case)]
    same = reader(name)
    half = text[: len(text) // 2]
    read(same, [half])
    assert list(read(same, [text])) == expected


def test_a_call_comes_out_when_it_is_complete() -> None:
    for name, table in TABLES.items():
        text, expected = table["a call" if "a call" in table else "named" if "named" in table else "bare"]
        assert list(reader(name).feed(text)) == expected


def cut(data: st.DataObject, text: str) -> list[str]:
    places = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=30)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


@pytest.mark.parametrize("depth", [MAX_DEPTH - 2, 2 * MAX_DEPTH])
def test_nesting_has_a_limit(depth: int) -> None:
    value = "[" * depth + "]" * depth
    answers = {
        "hermes": f'<tool_call>{{"name": "ping", "arguments": {{"a": {value}}}}}</tool_call>',
        "lfm2": f"<|tool_call_start|>[ping(a={value[1:-1]})]<|tool_call_end|>",
    }
    for name, text in answers.items():
        blocks = read(reader(name), [text])
        kept = value[1:-1] if name == "lfm2" else value
        assert blocks == ((Call("ping", f'{{"a": {kept}}}'),) if depth < MAX_DEPTH else (Text(text),))

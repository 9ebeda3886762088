"""The Jinja environment chat templates run in: Hugging Face's vocabulary, fenced in.

A template comes with the model, so it is not trusted: it cannot reach Python objects, change its
arguments, build texts and numbers of any size, or loop for ever.
"""

from __future__ import annotations

import json
import operator
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import BuiltinMethodType, CodeType
from typing import Any, NoReturn

from jinja2 import (
    Environment,
    Template,
    TemplateError,
    TemplateRuntimeError,
    nodes,
    pass_context,
    pass_environment,
)
from jinja2.ext import Extension, LoopControlExtension
from jinja2.filters import FILTERS, do_format
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS
from jinja2.visitor import NodeTransformer

from mashbox.chat import marked_text
from mashbox.chat.shield import Shield

MAX_CHARACTERS = 40 * 2**20
"""The longest text a template may build: a body of 32 MiB, and what the template adds."""
MAX_NUMBER_BITS = 4096
MAX_WIDTH = 10_000
MAX_RENDER_S = 4.0
"""Processor time one rendering may take: less than its process is given, which costs a new process.

A thousand messages take a twentieth of a second."""

TEMPLATE_FAILURES = (
    *(TemplateError, ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError),
    *(RuntimeError, TypeError, ValueError),
)
"""What running a template can raise; RuntimeError includes endless recursion."""

_AS_WRITTEN = "as written"  # filter names a template cannot spell
_BOUNDED = "bounded"
_TICK = "tick"
_DEADLINE = "the deadline"  # a variable that a template cannot spell
_WIDE_PERCENT = re.compile(r"%[^a-zA-Z%]*(?:\d{5}|[*])")
_WIDE_BRACES = re.compile(r":[^{}]*(?:\d{5}|\{)")
_PADDING = {"center", "ljust", "rjust", "zfill", "expandtabs"}
_COMPARISONS = ("in", "==", "eq", "equalto", "!=", "ne")
_ESCAPABLE = re.compile(r"[^\x00-\x7f]")


class RenderTimeoutError(TemplateRuntimeError):
    """The template runs for too long."""


class _GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks training text; here it only shows its body."""

    tags = {"generation"}  # noqa: RUF012 (the base class declares it so)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """The environment for one choice of stand-ins; templates see covered text as if it were not."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, shield: Shield, clock: Callable[[], datetime]) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, LoopControlExtension]
        )
        self.shield = shield
        self.binop_table |= {"+": _add, "*": _multiply, "**": _power, "%": _modulo}
        del self.globals["lipsum"]
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda pattern: clock().strftime(pattern)
        self.filters |= {
            "tojson": _to_json,
            "replace": _replace_filter,
            "trim": _trim_filter,
            "format": _format_filter,
            "center": _narrow(FILTERS["center"]),
            "indent": _narrow(FILTERS["indent"]),
            _AS_WRITTEN: _as_written,
            _BOUNDED: _bounded,
            _TICK: _tick,
        }
        self.tests |= {name: _seeing_test(TESTS[name]) for name in _COMPARISONS}

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call something from a template; string methods see through the shield."""
        _tick(context)
        if isinstance(obj, BuiltinMethodType) and isinstance(obj.__self__, str):
            obj = self._string_method(obj.__self__, obj.__name__)
        return _bounded(super().call(context, obj, *args, **kwargs))

    def _string_method(self, text: str, name: str) -> Callable[..., Any]:
        def method(*args: Any, **kwargs: Any) -> Any:
            if name in _PADDING:
                _check_widths(args, kwargs)
            return marked_text.call_method(self.shield, text, name, args, kwargs)

        return method

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """The sandboxed `str.format`, for format strings that cannot ask for wide fields."""
        wrapped = super().wrap_str_format(value)
        if wrapped is not None and _WIDE_BRACES.search(value.__self__):
            raise TemplateRuntimeError("a format string asks for a field that is too wide")
        return wrapped


def compile_source(source: str, environment: ChatEnvironment) -> tuple[CodeType, str]:
    """The template's code, and all text that stands in it. Raises what Jinja raises, with the line."""
    tree = environment.parse(source)
    constants = (node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str))
    literal_text = source + "".join(constants)
    return environment.compile(_Rewriter().visit(tree)), literal_text


def bind(code: CodeType, environment: ChatEnvironment) -> Template:
    """The compiled template, to run in `environment`."""
    return Template.from_code(environment, code, environment.make_globals(None))


def run(template: Template, variables: Mapping[str, Any]) -> str:
    """The template's output. Raises one of TEMPLATE_FAILURES."""
    deadline = time.thread_time() + MAX_RENDER_S
    return "".join(_counted(template.generate({**variables, _DEADLINE: deadline})))


def _counted(chunks: Iterator[str]) -> Iterator[str]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > MAX_CHARACTERS:
            raise _too_large()
        yield chunk


class _Rewriter(NodeTransformer):
    """Makes comparisons see through the shield, `~` mind the size of its result, and loops the time."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call_filter(nodes.Const(None), _TICK), lineno=node.lineno))
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = _filtered(node.expr, _AS_WRITTEN)
        for operand in node.ops:
            operand.expr = _filtered(operand.expr, _AS_WRITTEN)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, _BOUNDED)


def _filtered(node: nodes.Expr, name: str) -> nodes.Expr:
    return node if isinstance(node, nodes.Const) else _call_filter(node, name)


def _call_filter(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


@pass_context
def _tick(context: Context, _: object = None) -> None:
    """Runs at each turn of a loop and at each call. Needs the context, so it is never folded away."""
    if time.thread_time() > context[_DEADLINE]:
        raise RenderTimeoutError(f"it runs for more than {MAX_RENDER_S:.0f} seconds")


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _too_large() -> TemplateRuntimeError:
    return TemplateRuntimeError(f"the prompt would be longer than {MAX_CHARACTERS} characters")


def _bounded(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_CHARACTERS:
        raise _too_large()
    return value


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
        _check_length(len(left) + len(right))
    return operator.add(left, right)


def _multiply(left: Any, right: Any) -> Any:
    for sequence, times in ((left, right), (right, left)):
        if isinstance(sequence, str | list | tuple) and isinstance(times, int):
            _check_length(len(sequence) * times)
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())
    return operator.mul(left, right)


def _power(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() * right)
    return operator.pow(left, right)


def _modulo(left: Any, right: Any) -> Any:
    if isinstance(left, str) and _WIDE_PERCENT.search(left):
        raise TemplateRuntimeError("a format string asks for a field that is too wide")
    return operator.mod(left, right)


def _check_length(length: int) -> None:
    if length > MAX_CHARACTERS:
        raise _too_large()


def _check_bits(bits: int) -> None:
    if bits > MAX_NUMBER_BITS:
        raise TemplateRuntimeError("a number in the template grows too large")


def _check_widths(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    if any(isinstance(width, int) and width > MAX_WIDTH for width in (*args, *kwargs.values())):
        raise TemplateRuntimeError(f"text may be padded to {MAX_WIDTH} characters at most")


def _narrow(padding_filter: Callable[..., Any]) -> Callable[..., Any]:
    def narrow_filter(text: Any, *args: Any, **kwargs: Any) -> Any:
        _check_widths(args, kwargs)
        return padding_filter(text, *args, **kwargs)

    return narrow_filter


def _format_filter(text: str, *args: Any, **kwargs: Any) -> str:
    if _WIDE_PERCENT.search(text):
        raise TemplateRuntimeError("a format string asks for a field that is too wide")
    return do_format(text, *args, **kwargs)


def _shield_of(environment: Environment) -> Shield:
    assert isinstance(environment, ChatEnvironment)
    return environment.shield


@pass_environment
def _as_written(environment: Environment, value: Any) -> Any:
    return _shield_of(environment).uncover_value(value)


@pass_environment
def _replace_filter(environment: Environment, text: Any, old: str, new: str, count: int | None = None) -> str:
    times = -1 if count is None else count
    return marked_text.replace(_shield_of(environment), str(text), str(old), str(new), times)


@pass_environment
def _trim_filter(environment: Environment, text: Any, chars: str | None = None) -> Any:
    return marked_text.call_method(_shield_of(environment), str(text), "strip", (chars,), {})


def _seeing_test(test: Any) -> Callable[..., bool]:
    @pass_environment
    def seeing(environment: Environment, *values: Any) -> bool:
        return bool(test(*map(_shield_of(environment).uncover_value, values)))

    return seeing


@pass_environment
def _to_json(
    environment: Environment,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """`json.dumps` with these arguments; unlike Jinja's own filter it does not escape for HTML."""
    if isinstance(indent, int):
        _check_widths((indent,), {})
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    if not ensure_ascii:
        return text
    shield = _shield_of(environment)

    def escape(found: re.Match[str]) -> str:
        raw = shield.uncover(found[0])
        return found[0] if raw.isascii() else json.dumps(raw)[1:-1]

    return _ESCAPABLE.sub(escape, text)

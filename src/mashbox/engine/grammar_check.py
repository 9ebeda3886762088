"""Tries grammars in a process that can be killed: what compiles there in time compiles in the worker, too.

The library bounds most of its work by itself, but not all: a schema's `multipleOf` or many patterns that
must fit at once keep it busy for minutes. Started as `python -m mashbox.engine.grammar_check FD`; the
vocabulary is that of single bytes, since what takes long does not depend on it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from mashbox.engine.child import restrain
from mashbox.engine.frames import framed, receive

MOST_STATES = 50_000
"""Lexer states of one grammar, up to 2 kB each; the library's own limit would allow half a gigabyte."""
MOST_ITEMS = 20_000
"""Alternatives a grammar may follow at once: each tool begins two, each schema of many for a value some more.
The library's own limit of 2,000 is met by a thousand tools, and only once the answer has begun."""
MOST_FUEL = 200_000
"""What one mask may cost the lexer: some 20 ms."""

CHECK_S = 1.2
"""Processor time for one grammar. Two thousand tools take 0.3 s."""
PATIENCE_S = 10.0
"""Wall time for it: on a busy machine the processor time takes longer to come."""
START_TIMEOUT_S = 60.0
GRACE_S = 0.5
TOO_LONG = "it takes too long"
TOO_BIG = "it is too large"
MOST_CHARACTERS = 8 << 20

_END = 256


def limits() -> LLParserLimits:
    """What every grammar is compiled with."""
    return LLParserLimits(
        max_lexer_states=MOST_STATES,
        max_items_in_row=MOST_ITEMS,
        step_lexer_fuel=MOST_FUEL,
        verbose_errors=False,
    )


class GrammarCheck:
    """The process, seen from the worker. One thread uses it."""

    def __init__(self) -> None:
        self._helper: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self._ending: Callable[[], object] = lambda: None

    def fault(self, grammar: str) -> str | None:
        """Why a grammar is no use; None: it compiles. Raises OSError when no process can be started."""
        if len(grammar) > MOST_CHARACTERS:
            return TOO_BIG
        text = grammar.encode()
        for _ in range(2):  # a process that died at rest is no grammar's fault
            process, stream = self._helper or self._start()
            try:
                stream.sendall(framed(text))
                reply = receive(stream)
            except TimeoutError:
                self._forget()
                return TOO_LONG
            except OSError:
                reply = None
            if reply is not None:
                return reply.decode() or None
            self._forget()
            if process.returncode == -signal.SIGPROF:
                return TOO_LONG
        return TOO_BIG

    def _start(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = subprocess.Popen(
                    [sys.executable, "-m", "mashbox.engine.grammar_check", str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,  # the library writes a panic's whole trace
                    pass_fds=[theirs.fileno()],
                )
            except BaseException:
                ours.close()
                raise
        self._ending = weakref.finalize(self, _end, process, ours)
        ours.settimeout(START_TIMEOUT_S)
        try:
            receive(ours)  # it is up: loading the library is no grammar's time
        except OSError:
            self._forget()  # its word would be taken for that on the first grammar
            raise
        self._helper = process, ours
        ours.settimeout(PATIENCE_S)
        return process, ours

    def _forget(self) -> None:
        self._helper = None
        self._ending()


def _end(process: subprocess.Popen[bytes], stream: socket.socket) -> None:
    """Make sure that it is gone. One that ends by itself tells how."""
    stream.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
        return
    process.kill()
    process.wait()


class _Bytes:
    """The vocabulary of single bytes, as the library wants it."""

    eos_token_id = _END
    bos_token_id = None
    tokens = (*(bytes([byte]) for byte in range(256)), b"")
    special_token_ids = (_END,)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


def check(tokenizer: LLTokenizer, grammar: str) -> str:
    """The fault that the library finds, or nothing."""
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=limits())
    # The first mask costs most and shows what is too complex.
    matcher.compute_bitmask()
    return first_line(matcher.get_error()) if matcher.is_error() else ""


def first_line(error: str) -> str:
    """The library's message as part of a sentence."""
    lines = error.strip().splitlines()
    return lines[0].rstrip(".:") if lines else "it is not valid"


def serve(stream: socket.socket) -> None:
    """Until the stream ends."""
    tokenizer = LLTokenizer(TokenizerWrapper(_Bytes()))
    stream.sendall(framed(b""))
    while (text := receive(stream)) is not None:
        # Its signal ends the process, whatever the library does.
        signal.setitimer(signal.ITIMER_PROF, CHECK_S)
        fault = check(tokenizer, text.decode())
        signal.setitimer(signal.ITIMER_PROF, 0)
        stream.sendall(framed(fault.encode()))


def main() -> None:
    """Entry point; see the module's docstring."""
    restrain(signal.SIGPROF)
    os.environ["RUST_BACKTRACE"] = "0"
    with contextlib.suppress(ConnectionError):  # the worker is gone
        serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()

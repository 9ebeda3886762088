"""Frames come out as they went in, wherever the stream is cut."""

from __future__ import annotations

import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.engine.frames import FrameBuffer, framed, receive


def test_a_frame_is_a_big_endian_length_and_a_body() -> None:
    assert framed(b"abc") == b"\0\0\0\x03abc"


@given(st.lists(st.binary(max_size=300), max_size=6), st.data())
def test_cuts_do_not_matter(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(framed, bodies))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    buffer = FrameBuffer()
    came: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        came += buffer.bodies(stream[start:end])
    assert came == bodies


def test_receive_waits_for_the_whole_of_a_frame() -> None:
    ours, theirs = socket.socketpair()
    large = bytes(range(256)) * 8000
    with ours:
        with theirs:
            sender = threading.Thread(target=theirs.sendall, args=(framed(b"") + framed(large),))
            sender.start()
            assert [receive(ours), receive(ours)] == [b"", large]
            sender.join()
        assert receive(ours) is None


@pytest.mark.parametrize("cut", [2, 5])
def test_a_stream_that_ends_within_a_frame_has_ended(cut: int) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(framed(b"abc")[:cut])
        assert receive(ours) is None

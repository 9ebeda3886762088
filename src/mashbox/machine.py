"""What this machine offers: cores to compute on, a port to listen on."""

from __future__ import annotations

import ipaddress
import os
import socket
from pathlib import Path

from mashbox.errors import ConfigError

_CPUS = Path("/sys/devices/system/cpu")
BACKLOG = 2048
SEND_BUFFER_BYTES = 64 * 1024
"""What the kernel may hold for one client, which it doubles for its own needs: so a client that does not
read is noticed early."""
UNREAD_TIMEOUT_MS = 60_000
"""A connection whose client takes nothing for so long is dropped by the kernel. The server notices sooner,
but not what is left of connections that it has closed."""


def physical_cores() -> int:
    """Cores this process may use, hyper-threads counted once: decoding gains nothing from the second."""
    allowed = os.sched_getaffinity(0)
    cores = {_siblings(cpu) for cpu in allowed}
    return max(1, len(cores))


def _siblings(cpu: int) -> str:
    try:
        return (_CPUS / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bind(host: str, port: int) -> socket.socket:
    """A TCP socket that has the port but does not listen yet: until there is a server, clients are
    refused at once and do not hang. Port 0 takes any free one. Raises ConfigError with one plain line.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Accepted connections inherit these two.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_TIMEOUT_MS)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise _cannot_listen(host, port, error) from error
    return listener


def listen(listener: socket.socket) -> None:
    """Let clients connect. Raises ConfigError when someone else has begun to listen there."""
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        host, port = listener.getsockname()[:2]
        raise _cannot_listen(host, port, error) from error


def _cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(f"Cannot listen on {host} port {port}: {error.strerror}.")

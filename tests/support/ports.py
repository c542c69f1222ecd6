"""Ports for programs that cannot choose one themselves."""

from __future__ import annotations

import random
import socket

# Below those that Linux hands out by itself, or any process could get it before it is used.
_PORTS = range(20_000, 32_000)


def unused_port() -> int:
    """Returns a port at which nothing listens."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port

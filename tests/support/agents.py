"""Asks `rec-summary mcp` as agents do: with the SDK's own client, and a real process."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters, stdio_client
from mcp.types import CallToolResult, TextContent

from tests.support.command import PROGRAM


@contextlib.asynccontextmanager
async def client(source: Path | str, *options: str) -> AsyncIterator[Client]:
    words = [*PROGRAM[1:], "mcp", str(source), *options]
    started = StdioServerParameters(command=sys.executable, args=words, env={**os.environ})
    async with Client(stdio_client(started)) as connected:
        yield connected


def answers(
    source: Path | str, *calls: tuple[str, dict[str, Any]], options: tuple[str, ...] = ()
) -> list[CallToolResult]:
    """Returns the answers to calls of tools, one after another."""
    found = []

    async def talk() -> None:
        async with client(source, *options) as connected:
            for name, arguments in calls:
                found.append(await connected.call_tool(name, arguments))

    anyio.run(talk)
    return found


def texts(answer: CallToolResult) -> list[str]:
    return [each.text for each in answer.content if isinstance(each, TextContent)]

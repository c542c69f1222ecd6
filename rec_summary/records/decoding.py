"""What protobuf raises for bytes that are no message."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

# Protobuf's implementation in Python, which MindSpore has loaded where it was imported first,
# has errors of its own for strings that are not UTF-8 and, up to release 4, for deep nesting.
UNREADABLE: Final = (DecodeError, UnicodeDecodeError, RecursionError)

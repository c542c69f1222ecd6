"""MindSpore 2.7 to 2.9 and protobuf: what has to be so before they are imported.

The code that these releases have generated for their messages is refused by protobuf's fast
implementation, which every release of protobuf from 4 on prefers. Protobuf's implementation in
Python takes it. They choose that one themselves, by a variable of the environment, but it is read
when protobuf is loaded: in a process that has loaded protobuf before, they cannot be imported.
"""

from __future__ import annotations

import os
import re
import sys
from importlib import metadata
from typing import Final

_VARIABLE: Final = "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"
_FIRST_WITHOUT_TROUBLE: Final = (2, 10)


def wants_python_protobuf(version: str) -> bool:
    """Whether this version of MindSpore can only be imported beside protobuf in Python."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) < _FIRST_WITHOUT_TROUBLE


def prepare() -> None:
    """Has protobuf, when it is not loaded yet, load such that MindSpore can be imported later.

    Does nothing where MindSpore is absent or new enough, or where the user has chosen. Called
    by the rooms that MindSpore is loaded after, not by the export side: there it would cost
    speed for nothing.
    """
    if _installed() is not None:
        os.environ.setdefault(_VARIABLE, "python")


def check() -> None:
    """To be called before MindSpore is imported.

    Raises:
        ImportError: It could not be, because protobuf is loaded already.
    """
    loaded = sys.modules.get("google.protobuf.internal.api_implementation")
    if loaded is None or loaded.Type() == "python" or "mindspore" in sys.modules:
        return
    version = _installed()
    if version is not None:
        raise ImportError(
            f"MindSpore {version} cannot be imported any more in this process: protobuf is loaded "
            "already, with an implementation that refuses the messages of MindSpore before 2.10. "
            "Import mindspore before anything that loads protobuf, or set the environment "
            f"variable {_VARIABLE}=python before Python starts."
        )


def _installed() -> str | None:
    """Returns the version of the MindSpore that is installed if it is one of these."""
    try:
        version = metadata.version("mindspore")
    except metadata.PackageNotFoundError:
        return None
    return version if wants_python_protobuf(version) else None

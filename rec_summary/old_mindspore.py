"""MindSpore 2.7 to 2.9 need protobuf's implementation in Python, chosen before protobuf is loaded.

Protobuf's fast implementation, the default from protobuf 4 on, refuses the generated code of these
releases. They select the one in Python by an environment variable, which protobuf reads when it is
loaded. So they cannot be imported in a process that has loaded protobuf before.
"""

from __future__ import annotations

import os
import re
import sys
from importlib import metadata
from typing import Final

_VARIABLE: Final = "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"
_FIRST_UNAFFECTED: Final = (2, 10)


def wants_python_protobuf(version: str) -> bool:
    """Whether this version of MindSpore needs protobuf's implementation in Python."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return match is not None and (int(match[1]), int(match[2])) < _FIRST_UNAFFECTED


def prepare() -> None:
    """Selects protobuf's implementation in Python if the installed MindSpore needs it.

    Does nothing if protobuf is loaded already, or if the user has set the variable. The training
    side calls it before MindSpore is loaded; the read side does not, because it would be slower.
    """
    if _installed() is not None:
        os.environ.setdefault(_VARIABLE, "python")


def check() -> None:
    """Checks that MindSpore can be imported; call it before the import.

    Raises:
        ImportError: It cannot, because protobuf is loaded with another implementation.
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
    """Returns the version of the installed MindSpore if it is one of these."""
    try:
        version = metadata.version("mindspore")
    except metadata.PackageNotFoundError:
        return None
    return version if wants_python_protobuf(version) else None

"""What some versions of our dependencies cannot do, for tests to be skipped on these."""

from __future__ import annotations

from importlib import metadata

import pytest
from google.protobuf.internal import api_implementation

from rec_summary.old_mindspore import wants_python_protobuf

needs_lenient_strings = pytest.mark.skipif(
    api_implementation.Type() == "python",
    reason="protobuf in Python refuses strings that are not UTF-8",
)


def skip_without_their_collector() -> None:
    """Skips a test that runs MindSpore's own collector where that is absent or fails."""
    try:
        version = metadata.version("mindspore")
    except metadata.PackageNotFoundError:
        pytest.skip("MindSpore is not installed")
    if wants_python_protobuf(version):
        # It takes the maps in its lineage for lists, with any protobuf from 4 on.
        pytest.skip(f"MindSpore {version} cannot record by itself with the protobuf that we need")

"""MindSpore's private names: only one module uses them, and a missing one is named."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("mindspore")

from rec_summary import training
from rec_summary.training import _mindspore

ROOM = Path(str(training.__file__)).parent


def imported_names(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_a_renamed_private_name_fails_with_its_name() -> None:
    with pytest.raises(ImportError, match=r"has no mindspore\.train\.model\._NoSuchThing"):
        _mindspore.private("mindspore.train.model", "_NoSuchThing")
    with pytest.raises(ImportError, match=r"has no mindspore\.train\.Model\._device_number"):
        _mindspore.check_model(object())


def test_no_other_module_imports_private_names() -> None:
    private = {
        f"{path.name}: {name}"
        for path in ROOM.rglob("*.py")
        for name in imported_names(path)
        if name.startswith("mindspore") and "._" in name
    }
    assert private == set()

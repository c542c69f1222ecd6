"""How the tests are laid out: they mirror the package, and share code by `tests/support` only."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
# Tests of several rooms at once, of the tools, and of the programs in the documentation.
WITHOUT_A_ROOM = {"examples", "faults", "hostile", "mindinsight", "support", "tools"}
MODULES = sorted(path for top in ("tests", "tools") for path in (ROOT / top).rglob("*.py"))
TEST_MODULE = re.compile(r"\btests\.(\w+\.)*test_\w+|\bimport test_\w+|\bfrom \.+test_\w+")


def test_no_module_imports_a_test_module() -> None:
    # The text, not the syntax tree: some tests run another Python with an import in a string.
    found = [path for path in MODULES if TEST_MODULE.search(path.read_text())]
    assert found == []


def test_each_folder_of_tests_is_a_folder_of_the_package() -> None:
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    rooms = [folder for folder in folders if not WITHOUT_A_ROOM.intersection(folder.parts[:1])]
    assert [str(room) for room in rooms if not (ROOT / "rec_summary" / room).is_dir()] == []

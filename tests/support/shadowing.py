"""A working directory with a module for each that a program could import."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path


def shadow_modules(folder: Path) -> Path:
    """Makes the directory; returns a file that is created when one of its modules is imported."""
    imported = folder.with_name(f"{folder.name}-imported")
    code = f"open({str(imported)!r}, 'a').write(__name__ + ' ')\nraise ImportError"
    names = sys.stdlib_module_names | importlib.metadata.packages_distributions().keys()
    folder.mkdir()
    for name in filter(str.isidentifier, names):
        (folder / f"{name}.py").write_text(code)
    (folder / "google").mkdir()
    (folder / "google" / "__init__.py").write_text(code)
    return imported

"""How large the project is, and how far the tests hold its inside: `tools/check size`.

Needs nothing but Python. A line of code is one that is not blank, comment or docstring; the
protobuf classes in `_pb` are generated and do not count.
"""

from __future__ import annotations

import ast
import collections
import io
import sys
import tokenize
from pathlib import Path
from typing import Final, NamedTuple

MOST_LINES: Final = 37_400
MOST_PRIVATE: Final = 31
_NO_CODE: Final = (
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENDMARKER, tokenize.ENCODING),
)


class Private(NamedTuple):
    """What tests hold of the inside.

    Attributes:
        attributes: Accesses to private attributes, except of `self` and `cls`.
        patches: Calls of `setattr`, as of `monkeypatch`, of private and of public names.
    """

    attributes: int
    patches: int


def lines_of_code(source: bytes) -> int:
    """Returns how many lines of a module are code."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(ast.Constant(str()), end_lineno=int(end)):
                docstrings.update(range(node.lineno, end + 1))
    code: set[int] = set()
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docstrings)


def private_names(source: bytes) -> Private:
    """Returns what a test module holds of the inside."""
    attributes = patches = 0
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(ast.Name("self" | "cls" | "os")):  # `os._exit` is documented
                pass
            case ast.Attribute(attr="setattr"):
                patches += 1
            case ast.Attribute(attr=name):
                attributes += name.startswith("_") and not name.startswith("__")
    return Private(attributes, patches)


def measure(root: Path) -> tuple[dict[str, int], int, Private]:
    """Returns the lines of code of each package, the number of modules, and what tests hold."""
    sizes: collections.Counter[str] = collections.Counter()
    modules = 0
    package = root / "rec_summary"
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        if "_pb" not in parts:
            modules += 1
            sizes["rec_summary" if len(parts) == 1 else parts[0]] += lines_of_code(
                path.read_bytes()
            )
    held = [private_names(path.read_bytes()) for path in (root / "tests").rglob("*.py")]
    return dict(sizes), modules, Private(*map(sum, zip((0, 0), *held, strict=True)))


def main(root: Path = Path()) -> int:
    """Prints the sizes; returns 1 if the project is larger than it may be."""
    sizes, modules, private = measure(root)
    total = sum(sizes.values())
    for name, lines in sorted(sizes.items()):
        print(f"{lines:7,} {name}")
    print(f"{total:7,} lines of code in {modules} modules; at most {MOST_LINES:,}")
    held = sum(private)
    print(
        f"{held:7,} private names in tests, {private.attributes} attributes and "
        f"{private.patches} setattr; at most {MOST_PRIVATE}"
    )
    return int(total > MOST_LINES or held > MOST_PRIVATE)


if __name__ == "__main__":
    sys.exit(main())

"""The code blocks of a Markdown page, and how each wants to be treated.

A `bash` or `python` block is run, unless a comment before it says otherwise:

    <!-- not run: REASON -->     it cannot be run here
    <!-- needs: PACKAGE -->      it is run where this package is installed
    <!-- exits with 1 -->        that exit code is right
    <!-- for 5 seconds -->       it runs until it is stopped: Ctrl-C after this time
    <!-- given: NAME -->         given/NAME.py stands before this Python block
    <!-- file: NAME -->          it is the contents of a file, for the blocks that follow
    <!-- output -->              what the block before has printed; `--update` writes it
    <!-- prepare: NAME -->       no block: prepare/NAME.py makes what the page works with

Several are put in one comment, with semicolons.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RUNNABLE = {"bash", "python"}
_FENCE = re.compile(r"^```(\w*)\s*$")
_COMMENT = re.compile(r"^<!-- (.*) -->$")
_MARK = re.compile(
    r"(?P<key>not run|file|given|prepare|needs): (?P<value>.+)"
    r"|exits with (?P<code>\d+)|for (?P<seconds>\d+) seconds|output"
)


class MarkError(ValueError):
    """A comment before a block is none of those that are known."""


@dataclass(frozen=True)
class Block:
    """A code block.

    Attributes:
        path: The page.
        line: The line of its opening fence, from 1.
        end: The line of its closing fence.
        language: What it is written in; "prepare" for that mark.
        text: What is in it.
        marks: What the comment before it says.
    """

    path: Path
    line: int
    end: int
    language: str
    text: str
    marks: dict[str, str]

    @property
    def runs(self) -> bool:
        """Whether it is code to run."""
        is_code = self.language in RUNNABLE and not self.marks.keys() & {"not run", "file"}
        return is_code and not self.lacks

    @property
    def lacks(self) -> str:
        """The package that it needs and that is not installed; empty if there is none."""
        needed = self.marks.get("needs", "")
        return needed if needed and importlib.util.find_spec(needed) is None else ""


def blocks(path: Path) -> Iterator[Block]:
    """Yields the blocks of a page.

    Raises:
        MarkError: A comment just before a block is not understood.
    """
    lines = path.read_text().split("\n")
    number, marks = 0, {}
    while number < len(lines):
        line = lines[number]
        comment, fence = _COMMENT.match(line), _FENCE.match(line)
        if comment:
            marks = _marks(comment[1])
            if "prepare" in marks:
                yield Block(path, number + 1, number + 1, "prepare", "", marks)
                marks = {}
        elif fence:
            end = number + 1
            while lines[end].rstrip() != "```":
                end += 1
            if "?" in marks:
                raise MarkError(f"{path}:{number}: not understood: {marks['?']}")
            text = "\n".join(lines[number + 1 : end])
            yield Block(path, number + 1, end + 1, fence[1], text, marks)
            number, marks = end, {}
        elif line.strip():
            marks = {}
        number += 1


def replaced(path: Path, outputs: dict[int, str]) -> str:
    """Returns a page with other contents in some blocks.

    Args:
        path: The page.
        outputs: By the line of the opening fence, the contents.
    """
    lines = path.read_text().split("\n")
    for block in reversed(list(blocks(path))):
        if block.line in outputs:
            lines[block.line : block.end - 1] = outputs[block.line].split("\n")
    return "\n".join(lines)


def _marks(comment: str) -> dict[str, str]:
    marks = {}
    for part in comment.split(";"):
        mark = _MARK.fullmatch(part.strip())
        if not mark:
            return {"?": comment}
        if mark["key"]:
            marks[mark["key"]] = mark["value"]
        elif mark["code"]:
            marks["exits with"] = mark["code"]
        elif mark["seconds"]:
            marks["for"] = mark["seconds"]
        else:
            marks["output"] = ""
    return marks

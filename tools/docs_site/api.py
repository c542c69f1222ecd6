"""Writes the docstrings of the public names into docs/api.md, for `tools/docs api`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import rec_summary
from rec_summary import errors
from rec_summary.tables.frames import Records
from rec_summary.tables.groups import Groups
from rec_summary.training.landscape import policy

from . import generated

_TRAINING = (
    *("RecModel", "TrainStep", "SummaryCollector", "SummaryRecord", "EmbeddingTable"),
    *("RecommenderMetrics", "Advanced", "Task", "Importance", "Gate", "Slice", "Feature"),
    *("probe", "GradientProbe", "GradientMetrics", "Incident", "Durability", "Retention"),
)
_READING = (
    *("load", "load_incident", "export_tensorboard", "follow_tensorboard", "export_tables"),
    "ExportOptions",
)
_MEMBERS = {"SummaryCollector": ("flush", "summary_dir", "troubles")}  # the others are hooks
_LISTS = {"Args": "Arguments", "Attributes": "Attributes", "Raises": "Raises"}
_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields|Example):\n", re.MULTILINE)
_ENTRY = re.compile(r"^(\**\w+(?:, \w+)*):\s", re.MULTILINE)


def reference() -> str:
    """Returns the generated part.

    Raises:
        ValueError: A public name is in no part of the page, or in two.
    """
    parts = {
        "Training": {name: getattr(rec_summary, name) for name in _TRAINING},
        "Landscapes": {
            "SummaryLandscape": rec_summary.SummaryLandscape,
            **_classes(policy),
        },
        "Reading and exporting": {
            **{name: getattr(rec_summary, name) for name in _READING},
            **{each.__name__: each for each in (Records, Groups)},
        },
        "Errors": _classes(errors),
    }
    listed = sorted(name for part in parts.values() for name in part)
    public = {*rec_summary.__all__} - {"__version__"}
    if len({*listed}) < len(listed) or public - {*listed}:
        raise ValueError(f"public names that are listed: {listed}; that are there: {public}")
    lines = []
    for title, names in parts.items():
        lines += [f"| {title} | |", "|---|---|"]
        for name, value in names.items():
            lines.append(f"| [`{name}`](#{name.lower()}) | {_first_line(value)} |")
        lines.append("")
    for title, names in parts.items():
        lines += [f"## {title}", ""]
        for name, value in names.items():
            lines += [*_described(f"### {name}", name, value, _home(name, value))]
            if isinstance(value, type):
                for member, its in _members(name, value):
                    lines += _described(f"#### {name}.{member}", member, its, "")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip()


def _classes(module: ModuleType) -> dict[str, Any]:
    """Returns the public classes that a module defines, in its order."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__ and name[0] != "_"
    }


def _home(name: str, value: Any) -> str:
    """Returns how a name is imported; empty for one that is only a result."""
    if name in rec_summary.__all__:
        return f"from rec_summary import {name}"
    return "" if value in (Records, Groups) else f"from {value.__module__} import {name}"


def _members(name: str, value: type) -> Iterator[tuple[str, Any]]:
    """Yields what a class defines itself and describes, but for what only refers elsewhere."""
    for member, its in vars(value).items():
        function = getattr(its, "__func__", its)  # of a class method
        chosen = member in _MEMBERS.get(name, (member,)) and member[0] != "_"
        is_code = inspect.isfunction(function) or isinstance(its, property)
        if chosen and is_code and (doc := inspect.getdoc(function)) and doc != "As in `When`.":
            yield member, its


def _first_line(value: Any) -> str:
    return _linked(" ".join(_doc(value).split("\n\n")[0].split()))


def _doc(value: Any) -> str:
    return inspect.cleandoc(getattr(value, "__func__", value).__doc__ or "")


def _described(heading: str, name: str, value: Any, home: str) -> list[str]:
    lines = [heading, ""]
    signature = _signature(name, value)
    code = [*([home] if home else []), *([""] if home and signature else []), *signature]
    if code:  # `py`, because `tools/docs` runs blocks of `python`
        lines += ["```py", *code, "```", ""]
    lines += _markdown(_doc(value))
    own = vars(value).get("__init__") if isinstance(value, type) else None
    if own is not None and _SECTION.search(_doc(own)):
        lines += _markdown(_doc(own)[_SECTION.search(_doc(own)).start() :])
    return lines


def _signature(name: str, value: Any) -> list[str]:
    """Returns the lines of a signature; an argument has one of its own if they are many."""
    if isinstance(value, property):
        return []
    function = getattr(value, "__func__", value)
    if isinstance(value, type):
        function = vars(value).get("__init__")
        only_result = value in (Records, Groups)
        if not inspect.isfunction(function) or only_result or getattr(value, "_is_protocol", False):
            return []
    signature = inspect.signature(function)
    found = list(signature.parameters.values())
    method = isinstance(value, type) or "." in function.__qualname__
    texts = [_argument(each) for each in found[method:]]
    keyword = [each.kind is each.KEYWORD_ONLY for each in found[method:]]
    if True in keyword:
        texts.insert(keyword.index(True), "*")
    result = signature.return_annotation
    end = ")" if isinstance(value, type) or result is signature.empty else f") -> {result}"
    line = f"{name}({', '.join(texts)}{end}"
    return [line] if len(line) <= 100 else [f"{name}(", *(f"    {each}," for each in texts), end]


def _argument(each: inspect.Parameter) -> str:
    """Returns an argument as it is written: `str()` has quotation marks around annotations."""
    name = str(each.replace(annotation=each.empty, default=each.empty))
    annotation = "" if each.annotation is each.empty else f": {each.annotation}"
    return f"{name}{annotation}" + ("" if each.default is each.empty else f" = {each.default!r}")


def _markdown(doc: str) -> list[str]:
    text, *sections = _SECTION.split(doc)
    lines = [_linked(text.strip()), ""]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        body, rest = _indented(body)
        if title in _LISTS:
            lines += [f"**{_LISTS[title]}**", ""]
            _, *entries = _ENTRY.split(body)
            for name, words in zip(entries[::2], entries[1::2], strict=True):
                lines.append(
                    f"* `{name.replace(', ', '`, `')}`: {_linked(' '.join(words.split()))}"
                )
        elif title == "Example":
            lines += ["```py", body, "```"]
        else:
            lines.append(f"**{title}** {_linked(body)}")
        lines.append("")
        lines += [_linked(rest), ""] if rest else []
    return lines


def _indented(body: str) -> tuple[str, str]:
    """Returns what belongs to a section, without its indentation, and what follows it."""
    lines = body.rstrip().split("\n")
    end = next((at for at, line in enumerate(lines) if line and line[0] != " "), len(lines))
    return inspect.cleandoc("\n".join(lines[:end])), "\n".join(lines[end:])


def _linked(text: str) -> str:
    return re.sub(r"`docs/([\w/]+\.md)`", r"[\1](\1)", text)


if __name__ == "__main__":
    generated.command("api", reference)(prog_name="tools/docs api")

"""A hook of MkDocs: pages that do not exist yet leave no gap in the navigation.

`mkdocs.yml` names all pages in order. Those of OPTIONAL are left out if their file does not
exist; any other one that is missing fails the build. A part of a page between
`<!-- if PAGE -->` and `<!-- end if -->` is shown if PAGE exists.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

OPTIONAL = {"recommender.md", "alerts.md", "security.md", "performance.md", "versions.md"}
_CONDITION = re.compile(r"<!-- if (\S+) -->\n(.*?)<!-- end if -->\n?", re.DOTALL)


def on_config(config: Any) -> Any:
    """Takes the optional pages that do not exist out of the navigation."""
    config["nav"] = _existing(config["nav"], Path(config["docs_dir"]))
    return config


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    """Shows what depends on a page if that page exists."""
    folder = Path(config["docs_dir"])

    def shown(found: re.Match[str]) -> str:
        return found[2] if (folder / found[1]).exists() else ""

    return _CONDITION.sub(shown, markdown)


def _existing(entries: list[Any], folder: Path) -> list[Any]:
    kept: list[Any] = []
    for entry in entries:
        [(title, target)] = entry.items()
        if isinstance(target, list):
            kept.append({title: _existing(target, folder)})
        elif target not in OPTIONAL or (folder / target).exists():
            kept.append(entry)
    return [entry for entry in kept if list(entry.values()) != [[]]]

"""Links in Markdown: those of the site are checked by MkDocs, these are the others."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

_MARKDOWN_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_SECONDS = 20


def broken_in_markdown(files: Iterable[Path], root: Path) -> Iterator[str]:
    """Yields a line for each link to a file that does not exist, as GitHub would follow it."""
    for path in files:
        for link in _links(path):
            target, anchor = urldefrag(link)
            file = path if not target else path.parent / unquote(target)
            if urlsplit(link).scheme:
                continue
            if not file.exists():
                yield f"{path.relative_to(root)}: {link}: no such file"
            elif anchor and file.suffix == ".md" and anchor not in _headings(file):
                yield f"{path.relative_to(root)}: {link}: no such heading"


def external(files: Iterable[Path]) -> set[str]:
    """Returns the addresses of other sites."""
    links = {link for path in files for link in _links(path)}
    return {urldefrag(link)[0] for link in links if urlsplit(link).scheme in ("http", "https")}


def unreachable(addresses: Iterable[str]) -> Iterator[str]:
    """Asks for each address; yields a line for each that does not answer well."""
    for address in sorted(addresses):
        request = urllib.request.Request(address, headers={"User-Agent": "Mozilla/5.0"})
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS):
                pass
        except urllib.error.HTTPError as error:
            if error.code not in (401, 403, 429):  # it is there, but not for programs
                yield f"{address}: {error.code}"
        except OSError as error:
            yield f"{address}: {error}"


def _links(path: Path) -> list[str]:
    return _MARKDOWN_LINK.findall(_FENCE.sub("", path.read_text()))


def _headings(path: Path) -> set[str]:
    text = _FENCE.sub("", path.read_text())
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}

"""Takes credentials out of texts that are shown: URLs, and the errors of servers.

All of this takes linear time, because servers choose the texts of their errors.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterable, Iterator
from typing import Final

STORES: Final = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss")
"""Schemes of object stores. They have no directories, and no port after a colon."""

_WORD: Final = re.compile(r"[^\s'\"<>]+")
_USER: Final = re.compile(r"([^/?#@:]*:(?:[^/?#]*|(?!\d+/)[^?#]*?))@")  # keys may have a `/`
_KEYS: Final = re.compile(r"([^/?#@:]*:.*)@", re.DOTALL)
_QUERY: Final = re.compile(r"[?#].*", re.DOTALL)
_NAMES: Final = (
    "secret|token|passw(?:or)?d|signature|credential|access[_-]?key|api[_-]?key|authorization"
)
_SECRET: Final = re.compile(
    rf"(?i)((?:{_NAMES})[\w-]{{0,40}}[\"']?\s*[=:]\s*[\"']?)(?:(?:bearer|basic)\s+)?"
    r"[^\s\"'&,;<>)\]}]+"
)
_SECRET_WORD: Final = re.compile(
    rf"(?i){_NAMES}|passphrase|bearer|cookie|webhook|private[_-]?key|key(?![\w-])"
    r"|(?:pass|pwd|auth|creds)(?![a-z])|(?<![a-z])(?:sas|sig)(?![a-z])"
)
_SIGN: Final = re.compile(r"[=:]")
_BETWEEN: Final = re.compile(r"[/:@?&=]")
_HOST: Final = re.compile(r"localhost|[^.]+\..+", re.DOTALL)
_KEY: Final = re.compile(  # by its form: of AWS, GitHub, Hugging Face, OpenAI
    r"\b(?:(?:AKIA|ASIA)[A-Z0-9]{12,}\b|(?:gh[opsu]_|github_pat_|hf_|sk-)\w{20,})"
)
_MOST_PARTS: Final = 32  # of a URL's secret; each is searched for in every text
_LEAST_TOKEN: Final = 8  # characters: a shorter part of a path is rather a word

_secrets: Final[list[str]] = []  # of URLs, with nothing around them; the longest first


def scrubbed(text: str) -> str:
    """Returns a URL or an error's text without what looks like credentials."""
    text = _WORD.sub(_scrubbed_word, text)
    text = _KEY.sub("…", _SECRET.sub(r"\1…", text))
    for secret in _secrets:
        text = text.replace(secret, "…")
    return text


def scrubbed_command(words: Iterable[str]) -> Iterator[str]:
    """Yields the words of a command line, with `***` for the values of options like `--token`.

    What follows the name of a secret is left out whole, so rather too much is.
    """
    hides_next = False
    for word in map(scrubbed, words):
        name = _SECRET_WORD.search(word)
        sign = name and _SIGN.search(word, name.end())
        if hides_next:
            yield "***"
        else:
            yield f"{word[: sign.end()]}***" if sign else word
        hides_next = bool(name) and sign is None and word.startswith("-") and "=" not in word


def remember(url: str) -> bool:
    """Remembers the credentials in front of a URL's host, because errors may quote parts of them.

    Returns:
        Whether there are any.
    """
    scheme, _, address = url.partition("://")
    user = _user(scheme, address)
    if user is None:
        return False
    password = user[1].partition(":")[2]
    parts = [password, *user[1].split("/"), *password.split("/")]
    _keep({user[1], *[part for part in parts if len(part) > 3][:_MOST_PARTS]})
    return True


def remember_address(url: str) -> None:
    """Remembers the credentials of an address of messages, whose host or path may be a token."""
    remember(url)
    parts = _BETWEEN.split(url.partition("://")[2])
    tokens = [part for part in parts if len(part) >= _LEAST_TOKEN and not _HOST.fullmatch(part)]
    _keep(set(tokens[:_MOST_PARTS]))


def _keep(credentials: set[str]) -> None:
    credentials = credentials.union(map(urllib.parse.unquote, credentials))
    if not credentials.issubset(_secrets):
        # The longest first: without one of its parts, a secret would not be found.
        _secrets[:] = sorted(credentials.union(_secrets), key=len, reverse=True)


def _scrubbed_word(word: re.Match[str]) -> str:
    before, *rest = word[0].split("://")
    scrubbed_parts = [before]
    for text in rest:
        user = _user(before, text)
        scrubbed_parts.append(_QUERY.sub("?…", text if user is None else f"…@{text[user.end() :]}"))
        before = text
    return "://".join(scrubbed_parts)


def _user(before: str, text: str) -> re.Match[str] | None:
    """Returns the match of the credentials in front of a host.

    Args:
        before: What ends with the scheme.
        text: What follows `://`.
    """
    in_store = before.lower().endswith(STORES)
    return (_KEYS if in_store else _USER).match(text)

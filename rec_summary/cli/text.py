"""Numbers and sizes in words, for what the sub-commands print."""

from __future__ import annotations

from collections.abc import Mapping


def count_of(number: int, noun: str) -> str:
    """Returns a number and a noun, in the plural if need be."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def counts_of(numbers: Mapping[str, int]) -> str:
    """Returns how many there are of each kind of record or value, as a list in a sentence."""
    names = {kind: kind.removesuffix("_value").removesuffix("_def") for kind in numbers}
    return ", ".join(
        f"{n:,} {names[kind].replace('_', ' ')}" for kind, n in sorted(numbers.items())
    )


def size_of(nbytes: float) -> str:
    """Returns a size with its unit."""
    from rich.filesize import decimal

    return decimal(int(nbytes))


def number_of(value: object) -> str:
    """Returns a value for a cell of a table: a float in short, nothing for None."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)

"""Checks of the arguments that a collector and a summary record share."""

from __future__ import annotations

from rec_summary.checks import check_int_or_none, check_type
from rec_summary.errors import three_part, verbatim
from rec_summary.records.files import make_directory
from rec_summary.records.writing.retention import Retention
from rec_summary.records.writing.run_writer import Durability, Rotation


def check_durability(durability: Durability | None) -> Durability:
    """Returns the `durability` argument, or the defaults for None.

    Raises:
        TypeError: It has another type.
    """
    expected = "a rec_summary.Durability or None"
    check_type("durability", durability, (Durability, type(None)), expected)
    return durability or Durability()


def check_rotation(
    size: int | None,
    files: int | None = None,
    total: int | None = None,
    retention: Retention | None = None,
) -> Rotation:
    """Returns when files are full and what becomes of them. Limits drop whole files of a size.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: A limit is below 1, or the arguments do not fit together.
    """
    limits = {"max_file_size": size, "max_files": files, "max_total_bytes": total}
    for name, limit in limits.items():
        check_int_or_none(name, limit)
    expected = "a rec_summary.Retention or None"
    check_type("retention", retention, (Retention, type(None)), expected)
    if retention is not None:
        for name, limit in limits.items():
            if limit is not None:
                expected = "None where retention is given, which chooses the size of files"
                raise ValueError(three_part(name, limit, expected))
    if size is None and (files is not None or total is not None):
        expected = "an int of at least 1, where max_files or max_total_bytes is given"
        raise ValueError(three_part("max_file_size", size, expected))
    if size is not None and total is not None and total < 2 * size:
        expected = f"at least twice max_file_size, which is {size}"
        raise ValueError(three_part("max_total_bytes", total, expected))
    return Rotation(**limits, retention=retention)


def create_directory(name: str, path: str) -> None:
    """Creates the record directory that the argument `name` gives.

    Raises:
        OSError: It cannot be created, or a file has its name. The error keeps its number.
    """
    try:
        make_directory(path)
    except OSError as error:
        received = verbatim(f"{path!r} ({error.strerror or error})")
        expected = "a directory that can be made and written to, not a file"
        raise OSError(error.errno or 0, three_part(name, received, expected)) from error

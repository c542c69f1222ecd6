"""Tensors as `.npy` files beside the records, in MindSpore's layout.

    <record directory>/export_<unix seconds>/tensor/<url-quoted tag>_<step>.npy

Source: `export_options={'tensor_format': 'npy'}` of `mindspore.SummaryCollector` and
`mindspore.SummaryRecord`.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Mapping
from typing import Any

from rec_summary.arrays import Array
from rec_summary.checks import check_choice_or_none, check_entries
from rec_summary.records.files import DIRECTORY_MODE, FILE_MODE, write_atomically
from rec_summary.values.npy import file_name, save


def check_export_options(options: Mapping[str, Any] | None) -> bool:
    """Returns whether tensors are exported as `.npy` files.

    Raises:
        TypeError: It is not a dictionary, or a key or value is not a str.
        ValueError: A key or value is unknown.
    """
    formats = functools.partial(check_choice_or_none, choices=("npy",))
    entries = check_entries("export_options", options, {"tensor_format": formats})
    return entries.get("tensor_format") is not None


class NpyExporter:
    """Writes tensors into a directory of its own below a record directory.

    The first tensor creates the directory. Its name has the current second, or the first later one
    that is free, so two exporters never share a directory, whatever their rank. The number of
    files has no limit. You may remove them at any time.

    Not thread-safe: only the writer's thread uses it.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """Prepares an exporter. It creates nothing yet.

        Args:
            directory: The record directory.
        """
        self._directory = os.path.abspath(os.fspath(directory))
        self._folder: str | None = None

    def export(self, tag: str, step: int, array: Array) -> str:
        """Writes one tensor atomically (mode 0600); replaces one with the same tag and step.

        Args:
            tag: The tensor's tag, any text.
            step: The step of the tensor.
            array: Its elements; they keep their type.

        Returns:
            The path of the file.

        Raises:
            OSError: The directory or the file cannot be written.
            ValueError: The array holds Python objects.
        """
        if self._folder is None or not os.path.isdir(self._folder):
            self._folder = self._make_folder()
        path = os.path.join(self._folder, file_name(tag, step))
        with write_atomically(path, FILE_MODE) as file:
            save(file, array)
        return path

    def _make_folder(self) -> str:
        stamp = int(time.time())
        while True:
            top = os.path.join(self._directory, f"export_{stamp}")
            try:
                os.mkdir(top, DIRECTORY_MODE)
            except FileExistsError:
                stamp += 1
            else:
                break
        folder = os.path.join(top, "tensor")
        os.mkdir(folder, DIRECTORY_MODE)
        return folder

"""Tensors as `.npy` files beside the records, in MindSpore's layout.

    <record directory>/export_<unix seconds>/tensor/<url-quoted tag>_<step>.npy

Source: `export_options={'tensor_format': 'npy'}` of `mindspore.SummaryCollector` and
`mindspore.SummaryRecord`.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy.typing as npt

from rec_summary.records.files import DIRECTORY_MODE, FILE_MODE, write_atomically
from rec_summary.values.npy import file_name, save


class NpyExporter:
    """Writes tensors into a directory of its own below a record directory.

    The directory is made with the first tensor. It carries the current second, or a later
    one that is free: two exporters never write into each other's, whatever their rank.
    There is no limit to the number of files; they may be removed at any time.

    Not thread-safe: the writer's thread alone uses it.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """Prepares an exporter; nothing is created yet.

        Args:
            directory: The record directory.
        """
        self._directory = os.path.abspath(os.fspath(directory))
        self._folder: str | None = None

    def export(self, tag: str, step: int, array: npt.NDArray[Any]) -> str:
        """Writes one tensor (mode 0600); a file is there whole or not at all.

        The newest of several with one tag and step stays.

        Args:
            tag: The tensor's tag, any text.
            step: The step that it belongs to.
            array: Its elements; they keep their type.

        Returns:
            Where it was written.

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

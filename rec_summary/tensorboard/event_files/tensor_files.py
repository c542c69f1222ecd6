"""Recorded tensors as `.npy` files beside the event file of their run."""

from __future__ import annotations

from typing import Final

from rec_summary._pb.anf_ir_pb2 import TensorProto
from rec_summary.records.files import write_atomically
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.values.npy import file_name, save
from rec_summary.values.tensor import from_tensor

FOLDER: Final = "tensors"


class TensorFiles:
    """Writes `<run>/tensors/<url-quoted tag>_<step>.npy`, each complete or not at all."""

    def __init__(self, logdir: LogDir, run: str) -> None:
        """Prepares; the folder is made with the first tensor."""
        self._logdir = logdir
        self._folder = f"{run}/{FOLDER}"

    def write(self, tag: str, step: int, tensor: TensorProto) -> None:
        """Writes a tensor; the newest of several with one tag and step stays.

        Raises:
            DestinationError: It cannot be written.
            ValueError: Its elements do not fit its type or shape.
        """
        array = from_tensor(tensor)
        with (
            self._logdir.made(self._folder) as directory,
            write_atomically(file_name(tag, step), dir_fd=directory) as file,
        ):
            save(file, array)

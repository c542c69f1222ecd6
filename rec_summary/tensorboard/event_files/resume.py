"""Whether an export can go on where an earlier one stopped."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rec_summary.records.format.names import Kind
from rec_summary.records.reading.runs import Run
from rec_summary.series.options import ExportOptions
from rec_summary.tensorboard.event_files.continued_file import can_go_on
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.event_files.targets import Names, Targets


def is_in_force(
    state: Mapping[str, Any], run: Run, names: Names, logdir: LogDir, options: ExportOptions
) -> bool:
    """Whether a cursor describes these records, these options and these event files.

    Args:
        state: What the cursor says.
        run: The run with the files that it has now.
        names: Knows the names of all recorded runs.
        logdir: The log directory, entered.
        options: What is to be exported.

    Raises:
        DestinationError: An event file cannot be read.
    """
    if not options.resumable or state["options"] != options.fingerprint():
        return False
    if not Targets.fit(run, names, state["targets"]):
        return False
    files = {os.path.basename(file.path): file for file in run.files}
    known = {name for name in state["files"] if name in files}
    gone = set(state["files"]) - known
    # The oldest summary files may be gone, to make room on the disk. A lineage file is
    # never removed alone: if one is gone, these are the records of another training.
    if not known or any(name.endswith(Kind.LINEAGE.value) for name in gone):
        return False
    if any(files[name].nbytes < state["files"][name][0] for name in known):
        return False
    return all(can_go_on(logdir, name, output) for name, output in state["outputs"].items())

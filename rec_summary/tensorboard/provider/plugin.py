"""What `tensorboard` loads: record directories below `--logdir` are shown like event files.

TensorBoard loads this module at every start, and fails if that fails. So nothing is imported here
but what TensorBoard has loaded already, and whatever goes wrong later is said on standard error:
TensorBoard then starts as if this package were not installed.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import Any

from tensorboard.plugins import base_plugin


class RecordsLoader(base_plugin.TBLoader):  # type: ignore[misc]
    """Serves the records below the log directory to this TensorBoard.

    Attributes:
        index: The runs that are shown; None if there are none.
    """

    index: Any = None

    def define_flags(self, parser: Any) -> None:
        """Adds `--rec_summary`."""
        group = parser.add_argument_group("MindSpore records (rec_summary)")
        # In a checkout, TensorBoard finds this plugin twice: installed, and in the directory.
        with contextlib.suppress(argparse.ArgumentError):
            group.add_argument(
                "--rec_summary",
                choices=("auto", "on", "off"),
                default="auto",
                help="Whether MindSpore records below --logdir are shown, beside event files: "
                "auto (default) if there are any at the start, on in any case, off never.",
            )
            group.add_argument(
                "--rec_summary_x",
                choices=("step", "samples"),
                default="step",
                help="Show records over steps (default), or over the examples seen in training.",
            )
            group.add_argument(
                "--rec_summary_group_by",
                metavar="NAME",
                default="group",
                help="Show the mean of runs that differ only in the hyper-parameter NAME, such as "
                "seed; with group (default), of runs with the same entry `group`.",
            )

    def fix_flags(self, flags: Any) -> None:
        """Starts to serve the records, if there are any."""
        if getattr(flags, "rec_summary", "off") == "off":
            return
        try:
            from rec_summary.tensorboard.provider.records_server import serve_records

            self.index = serve_records(flags)
        except Exception as error:  # noqa: BLE001 - never breaks a TensorBoard
            _say("records are not shown", error)

    def load(self, context: Any) -> Any:
        """Returns the plugin with the page of recommenders; None if no records are shown."""
        if self.index is None:
            return None
        try:
            from rec_summary.tensorboard.provider.records_plugin import RecordsPlugin

            return RecordsPlugin(context, self.index)
        except Exception as error:  # noqa: BLE001 - never breaks a TensorBoard
            _say("no page Recommender, and no tables of records in the Projector", error)
            return None


def _say(what: str, error: Exception) -> None:
    sys.stderr.write(f"rec_summary: {what}: {type(error).__name__}: {error}\n")

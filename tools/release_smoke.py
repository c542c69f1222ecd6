"""Tries an installed rec_summary; `tools/release` calls this with each environment's Python.

release_smoke.py --records FOLDER            writes records to try it with
release_smoke.py VERSION RECORDS [EXTRAS]    tries it
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path


def write(folder: str) -> None:
    """Writes a run of ten scalars, as MindSpore would."""
    from rec_summary._pb.summary_pb2 import Event, Summary
    from rec_summary.records.format.framing import frame

    run = Path(folder) / "run"
    run.mkdir(parents=True)
    messages = [Event(wall_time=1.0, version="MindSpore.Event:1")]
    for step in range(1, 11):
        value = Summary.Value(tag="loss", scalar_value=1 / step)
        messages.append(Event(wall_time=1.0 + step, step=step, summary=Summary(value=[value])))
    data = b"".join(frame(message.SerializeToString()) for message in messages)
    (run / "events.out.events.summary.1.0.host_MS").write_bytes(data)


def command(*arguments: str) -> str:
    """Runs the installed command and returns what it printed."""
    done = subprocess.run(["rec-summary", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"rec-summary {' '.join(arguments)}: {done.returncode}\n{done.stderr}")
    return done.stdout


def check(what: str, good: bool) -> None:
    """Exits with an error if a check fails."""
    if not good:
        sys.exit(f"failed: {what}")
    print(f"  {what}")


def main(version: str, records: str, extras: str = "") -> None:
    """Tries what every installation has, and what the extras add."""
    import rec_summary

    check(f"installed: {rec_summary.__file__}", "site-packages" in (rec_summary.__file__ or ""))
    check(f"version {version}", rec_summary.__version__ == version)
    check("typed", (Path(rec_summary.__file__).parent / "py.typed").is_file())
    check("the command's version", version in command("--version"))
    command("export", records, "logs")
    check("exported for TensorBoard", any(Path("logs/run").glob("*tfevents*")))
    command("export", records, "csv", "--format", "csv")
    check("exported as CSV", len(Path("csv/scalars.csv").read_text().splitlines()) == 11)
    [run] = json.loads(command("inspect", records, "--json"))["runs"]
    check("inspected", run["run"] == "run")
    command("verify", records)
    has_mindspore = importlib.util.find_spec("mindspore") is not None
    check("MindSpore is installed only with its extra", has_mindspore == ("mindspore" in extras))
    if has_mindspore:
        _train(rec_summary)
    else:
        _refuses(rec_summary)
    if "tables" in extras:
        check("a DataFrame", len(rec_summary.load(records).scalars()) == 10)
        command("export", records, "parquet", "--format", "parquet")
        check("exported as Parquet", any(Path("parquet/scalars").glob("*/*/*.parquet")))
    for folder in ("logs", "csv", "parquet", "trained"):
        shutil.rmtree(folder, ignore_errors=True)


def _refuses(rec_summary: object) -> None:
    try:
        rec_summary.SummaryCollector  # type: ignore[attr-defined]  # noqa: B018
    except ImportError as error:
        check("the training side says what it needs", "rec_summary[mindspore]" in str(error))
    else:
        check("the training side needs MindSpore", False)


def _train(rec_summary: object) -> None:
    import numpy as np
    from mindspore import nn
    from mindspore.dataset import NumpySlicesDataset
    from mindspore.train import Model

    rows = np.ones((40, 4), np.float32)
    data = NumpySlicesDataset((rows, rows[:, :1]), ["x", "y"]).batch(4)
    network = nn.Dense(4, 1)
    model = Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), 0.1))
    collector = rec_summary.SummaryCollector("trained", collect_freq=1)  # type: ignore[attr-defined]
    model.train(1, data, callbacks=[collector], dataset_sink_mode=False)
    check("trained and recorded", "FINISHED" in command("inspect", "trained"))


if __name__ == "__main__":
    if sys.argv[1] == "--records":
        write(sys.argv[2])
    else:
        main(*sys.argv[1:])

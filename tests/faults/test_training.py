"""Whatever happens around it: training ends as it would have, and what was promised is there."""

from __future__ import annotations

import concurrent.futures
import json
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.children import Left, left_in, start
from tests.faults.ledger import Ledger
from tests.support import forkserver
from tests.support.waiting import PATIENCE_SECS

pytest.importorskip("mindspore")

STEPS = 60
LONG = 400  # more than the queue holds
AT_STEP = 20
SIGNALS = ("SIGTERM", "SIGINT twice")
UNHARMED = (  # training comes to its end, and all steps are recorded
    "none",
    "clock steps back",
    "directory moved",
    "directory read only",
    "fork",
    "fsync at each flush",
    "metrics slower than training",
    "slow disk, block",
    "workers fork",
    "workers spawn",
)
ENDED = {  # by what: training ends early, all steps until then are recorded
    "error in callback": ("FAILED", "ZeroDivisionError", 1),
    "error in dataset": ("FAILED", "ZeroDivisionError", 1),
    "error in network": ("FAILED", "ZeroDivisionError", 1),
    "sys exit": ("STOPPED", "SystemExit(3)", 3),
}
LOSSY = ("disk full", "directory deleted", "slow disk, drop")


@dataclass
class Outcome:
    """How one training went.

    Attributes:
        folder: Where it recorded.
        steps: The steps that it did.
        flushed: The last step that the collector called flushed.
        digest: Of the parameters at the end.
        troubles: The collector's.
        code: The exit code.
        errors: What it wrote to standard error.
    """

    folder: Path
    steps: set[int]
    flushed: int
    digest: str
    troubles: dict[str, int]
    code: int
    errors: str

    @property
    def left(self) -> Left:
        """What it left on disk."""
        return left_in(self.folder)


Outcomes = dict[str, "concurrent.futures.Future[Outcome]"]


def run(folder: Path, scenario: str) -> Outcome:
    """Trains in a process of its own, and waits for its end."""
    steps, told = set(), {"flushed": "0", "digest": "", "troubles": "{}"}
    name = "endless" if scenario in SIGNALS else scenario
    words = ("tests.faults.train", folder, name, steps_of(scenario))
    process = start(*words, popen=forkserver.Popen)
    assert process.stdout is not None
    for line in process.stdout:
        what, _, rest = line.strip().partition(" ")
        if what == "step":
            steps.add(int(rest.split()[0]))
            if int(rest.split()[0]) == AT_STEP and scenario in SIGNALS:
                send(process, scenario)
        elif what in told:
            told[what] = rest
    _, errors = process.communicate(timeout=PATIENCE_SECS)
    return Outcome(
        folder,
        steps,
        int(told["flushed"]),
        told["digest"],
        json.loads(told["troubles"]),
        process.returncode,
        errors,
    )


def steps_of(scenario: str) -> int:
    """Returns how many steps a scenario has."""
    return LONG if scenario.startswith("slow disk") or scenario == "alone, long" else STEPS


def alone_of(outcomes: Outcomes, scenario: str) -> Outcome:
    """Returns the training without a collector that a scenario is compared with."""
    return outcomes["alone, long" if steps_of(scenario) == LONG else "alone"].result()


def send(process: subprocess.Popen[str], scenario: str) -> None:
    """Sends what the scenario is called after."""
    process.send_signal(signal.SIGTERM if scenario == "SIGTERM" else signal.SIGINT)
    if scenario == "SIGINT twice":
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | None]:
    """A file system with 32 KiB of room; None where none may be mounted."""
    folder = tmp_path_factory.mktemp("small")
    mount = ["mount", "-t", "tmpfs", "-o", "size=32k", "none", str(folder)]
    mounted = subprocess.run(mount, capture_output=True).returncode == 0
    yield folder if mounted else None
    if mounted:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(scope="module")
def outcomes(
    tmp_path_factory: pytest.TempPathFactory, small_disk: Path | None
) -> Iterator[dict[str, concurrent.futures.Future[Outcome]]]:
    """All trainings, two at a time."""
    base = tmp_path_factory.mktemp("faults")
    base.chmod(0o755)
    for parent in base.parents[:3]:  # one of the trainings is nobody's
        if not parent.stat().st_mode & stat.S_IXOTH:
            parent.chmod(0o755)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        yield {
            scenario: pool.submit(
                run,
                (small_disk if scenario == "disk full" and small_disk else base)
                / scenario.replace(" ", "_")
                / "records",
                scenario,
            )
            for scenario in ("alone", "alone, long", *UNHARMED, *ENDED, *LOSSY, *SIGNALS)
        }


@pytest.mark.parametrize("scenario", UNHARMED)
def test_training_and_records_are_whole(outcomes: Outcomes, scenario: str, ledger: Ledger) -> None:
    outcome, alone = outcomes[scenario].result(), alone_of(outcomes, scenario)
    ledger.tried(scenario if scenario != "none" else "no fault")
    assert outcome.code == 0, outcome.errors
    assert outcome.digest == alone.digest
    if scenario == "directory moved":
        outcome.folder = Path(f"{outcome.folder}-moved")
    left = outcome.left
    assert left.steps == list(range(1, steps_of(scenario) + 1))
    assert left.torn == 0
    assert left.statuses[-1] == "FINISHED" or left.reason == "request_stop"
    ledger.survived(scenario if scenario != "none" else "no fault", outcome.steps, set(left.steps))


@pytest.mark.parametrize("scenario", ENDED)
def test_an_early_end_loses_no_step(outcomes: Outcomes, scenario: str, ledger: Ledger) -> None:
    status, reason, code = ENDED[scenario]
    outcome = outcomes[scenario].result()
    ledger.tried(scenario)
    assert outcome.code == code, outcome.errors
    if scenario != "error in dataset":  # MindSpore reads ahead, and tells at once
        assert max(outcome.steps) == AT_STEP
    left = outcome.left
    assert left.statuses[-1] == status
    assert left.reason.startswith(reason)
    ledger.survived(scenario, outcome.steps, set(left.steps))


@pytest.mark.parametrize("scenario", SIGNALS)
def test_a_signal_loses_no_step(outcomes: Outcomes, scenario: str, ledger: Ledger) -> None:
    outcome = outcomes[scenario].result()
    ledger.tried(scenario)
    # During a step MindSpore turns Ctrl-C into SIGTERM.
    # The second one may come after the training, when nothing handles it any more.
    assert outcome.code in ((143, 130, -2, -15) if scenario == "SIGINT twice" else (143,))
    assert outcome.left.statuses[-1] == "STOPPED"
    ledger.survived(scenario, outcome.steps, set(outcome.left.steps))


def test_a_full_disk_costs_records_and_nothing_else(
    outcomes: Outcomes, small_disk: Path | None, ledger: Ledger
) -> None:
    if small_disk is None:
        pytest.skip("no file system can be mounted here")
    outcome, alone = outcomes["disk full"].result(), outcomes["alone"].result()
    ledger.tried("disk full")
    assert outcome.code == 0, outcome.errors
    assert outcome.digest == alone.digest
    left = outcome.left
    assert left.torn == 0
    assert left.steps == list(range(1, len(left.steps) + 1))  # no gap
    assert len(left.steps) < STEPS
    assert "No space left" in outcome.errors
    assert outcome.errors.count("No space left") <= 4  # one line for each kind of trouble
    assert sum(outcome.troubles.values()) > 0
    ledger.survived("disk full", set(range(1, outcome.flushed + 1)), set(left.steps))


def test_a_deleted_directory_is_made_again(outcomes: Outcomes, ledger: Ledger) -> None:
    outcome, alone = outcomes["directory deleted"].result(), outcomes["alone"].result()
    ledger.tried("directory deleted")
    assert outcome.code == 0, outcome.errors
    assert outcome.digest == alone.digest
    assert outcome.troubles == {"record file deleted": 2}
    left = outcome.left
    assert left.statuses[-1] == "STOPPED"
    # The next flush after the deletion notices it: step 25's at the latest.
    ledger.survived("directory deleted", set(range(26, STEPS + 1)), set(left.steps))


def test_a_slow_disk_may_drop_but_says_how_much(outcomes: Outcomes, ledger: Ledger) -> None:
    outcome = outcomes["slow disk, drop"].result()
    alone = alone_of(outcomes, "slow disk, drop")
    ledger.tried("slow disk, drop")
    assert outcome.code == 0, outcome.errors
    assert outcome.digest == alone.digest
    dropped = outcome.troubles["record dropped"]
    left = outcome.left
    assert outcome.errors.count("record dropped: ") == 1  # said once
    ledger.survived("slow disk, drop", LONG - dropped, len(set(left.steps)))

"""Locks on directories.

There are two kinds, because none works everywhere:

* `flock`: the operating system holds the lock, and releases it when its holder dies. Use it on
  local disks, and on network file systems that pass locks on (NFS 4, NFS 3 with lockd, Lustre
  and GPFS as they are usually mounted). Its file is never removed.
* `soft`: the lock is the existence of a file that names its holder. Use it where `flock` fails
  or works within one host only. A dead holder is recognised on its own host and loses the
  lock; other hosts wait for it.
"""

from __future__ import annotations

import os
from typing import Final

import filelock

from rec_summary.checks import check_choice
from rec_summary.records.files import refuse_link, refuse_lock

KINDS: Final = ("flock", "soft")
ENVIRONMENT: Final = "REC_SUMMARY_LOCK"
LOCK_NAME: Final = ".rec_summary.lock"
"""The lock of a directory: of records, of checkpoints, or of a landscape's points."""
_MODE: Final = 0o600
# Some releases of filelock take the soft lock of a dead holder at their second attempt only.
_STALE_SECS: Final = 0.1


def check_kind(name: str, value: str | None) -> str:
    """Returns a kind of lock: the one given, else the environment's, else `flock`.

    Args:
        name: What the value is called, for the message.
        value: One of `KINDS`; None asks the environment variable `REC_SUMMARY_LOCK`.

    Raises:
        TypeError: It is not a str.
        ValueError: There is no such kind of lock.
    """
    if value is None:
        name, value = f"the environment variable {ENVIRONMENT}", os.environ.get(ENVIRONMENT)
        value = value or KINDS[0]
    return check_choice(name, value, KINDS)


def file_lock(path: str, *, timeout: float, kind: str | None = None) -> filelock.BaseFileLock:
    """Returns a lock that is not taken yet; use it as a context, or `acquire` and `release`.

    Args:
        path: The lock file (mode 0600).
        timeout: How long to wait for another holder, in seconds; then `filelock.Timeout`,
            which is an OSError, is raised. A soft lock waits for 0.1 s at least.
        kind: One of `KINDS`; None asks the environment.

    Raises:
        OSError: The lock file is a link, or has content of its own.
        ValueError: There is no such kind of lock.
    """
    kind = check_kind("the kind of lock", kind)
    if kind == "soft":
        # Another name: the file of a flock stays, and would look like a holder.
        refuse_link(f"{path}.soft")
        least = max(timeout, _STALE_SECS)
        return filelock.SoftFileLock(f"{path}.soft", timeout=least, mode=_MODE)
    refuse_lock(path)
    return filelock.FileLock(path, timeout=timeout, mode=_MODE)

"""Makes a virtual environment, and makes it again only when something else is wanted in it."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from dataclasses import asdict
from pathlib import Path

from tools.version_matrix.environments import Wanted

_STAMP = "wanted.json"

_SHOW_INSTALLED = """
import json, platform, sys
from importlib import metadata
found = {"Python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


class InstallError(Exception):
    """An environment could not be made; the text ends with pip's last words."""


def ensure(
    home: Path,
    python: str,
    wanted: Wanted,
    bounds: tuple[str, ...] = (),
    *,
    fresh: bool = False,
) -> bool:
    """Makes the environment at `home`, unless one with the same contents is there.

    Args:
        home: The folder of the environment.
        python: What it is made with.
        wanted: What is installed into it.
        bounds: What setup.cfg asks for, which must be unchanged for the environment to be kept.
        fresh: Whether it is made again in any case.

    Returns:
        Whether it had to be made.

    Raises:
        InstallError: Python or pip refuses.
    """
    stamp = home / _STAMP
    contents = json.dumps({"python": python, **asdict(wanted), "bounds": bounds})
    if not fresh and stamp.is_file() and stamp.read_text() == contents:
        return False
    if home.exists():
        shutil.rmtree(home)
    _checked([python, "-m", "venv", str(home)])
    if wanted.requirements:
        with tempfile.TemporaryDirectory() as folder:
            constraints = Path(folder, "constraints.txt")
            constraints.write_text("\n".join(wanted.constraints))
            pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet"]
            # A release without a wheel would be compiled, for long and with whatever is there.
            pip += ["--disable-pip-version-check", "--only-binary=:all:"]
            pip += ["--constraint", str(constraints)]
            _checked([*pip, *wanted.requirements])
    stamp.write_text(contents)  # last: an interrupted installation is made again
    return True


def installed(home: Path, packages: list[str]) -> dict[str, str]:
    """Returns the version of Python and of each of the packages that the environment has."""
    python = str(home / "bin" / "python")
    done = subprocess.run(
        [python, "-c", _SHOW_INSTALLED, *packages], capture_output=True, text=True, check=True
    )
    return dict(json.loads(done.stdout))


def _checked(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()[-15:]
        raise InstallError("\n".join([" ".join(command[:4]) + " …", *lines]))

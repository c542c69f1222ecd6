"""Which environments there are, and what pip is asked to put into each."""

from __future__ import annotations

import configparser
import re
from dataclasses import dataclass
from pathlib import Path

from rec_summary.errors import three_part

ROOT = Path(__file__).resolve().parents[2]

# What the tests themselves need; setup.cfg's bounds on the extra `dev` are for the linters too.
_TEST_TOOLS = ("distributed", "hypothesis", "psutil", "pytest", "selenium")
_EXPORT_EXTRAS = ("tables", "landscape", "pictures")
_TRAINING_EXTRAS = ("mindspore", *_EXPORT_EXTRAS)


@dataclass(frozen=True)
class Environment:
    """One column of the table.

    Attributes:
        name: What it is called on the command line.
        python: The Python that it is made with, such as "3.10".
        extras: The extras of this package that are installed.
        oldest: Whether every dependency is at the lower bound that setup.cfg states.
        pins: Further requirements, such as "mindspore==2.10.*". Where the environment is the
            oldest, they stand in for the lower bounds of the same packages.
        purpose: A line for people.
        variables: What is set in the tests' process environment, as name and value.
    """

    name: str
    python: str
    extras: tuple[str, ...]
    oldest: bool
    pins: tuple[str, ...]
    purpose: str
    variables: tuple[tuple[str, str], ...] = ()


ENVIRONMENTS = (
    Environment(
        "oldest", "3.10", _EXPORT_EXTRAS, True, (),
        "the export side, every dependency at its lower bound",
    ),
    Environment(
        "newest", "3.12", _EXPORT_EXTRAS, False, (),
        "the export side, every dependency as new as allowed",
    ),
    Environment(
        # Earlier releases of Pillow are not published as wheels for Python 3.11.
        "mindspore-2.7", "3.11", _TRAINING_EXTRAS, True, ("pillow==9.3",),
        "both sides on the oldest MindSpore, every dependency at its lower bound",
        # MindSpore 2.7 to 2.9 can be imported with this only, and sets it when it comes first.
        # In pytest's process protobuf comes first.
        (("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python"),),
    ),
    Environment(
        "mindspore-2.10", "3.11", _TRAINING_EXTRAS, False, ("mindspore==2.10.*",),
        "both sides on MindSpore 2.10, every dependency as new as it bears",
    ),
)  # fmt: skip
ENDS = ("oldest", "newest")


def named(names: list[str]) -> list[Environment]:
    """Returns the environments of these names, all when there are none.

    Raises:
        ValueError: There is no environment of a name.
    """
    known = {environment.name: environment for environment in ENVIRONMENTS}
    for name in names:
        if name not in known:
            raise ValueError(three_part("environment", name, f"one of {', '.join(known)}"))
    return [environment for environment in ENVIRONMENTS if not names or environment.name in names]


@dataclass(frozen=True)
class Wanted:
    """What pip is asked for: requirements, and constraints on what they bring along."""

    requirements: tuple[str, ...]
    constraints: tuple[str, ...]


def dependencies(setup_cfg: str, extras: tuple[str, ...]) -> list[str]:
    """Returns the requirements that the text of a setup.cfg states, those of `extras` included."""
    config = configparser.ConfigParser()
    config.read_string(setup_cfg)
    blocks = [config["options"]["install_requires"]]
    blocks += [config["options.extras_require"][extra] for extra in extras]
    lines = [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


def project_name(requirement: str) -> str:
    """Returns the name in a requirement such as "numpy >=1.24,<3"."""
    found = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", requirement)
    if found is None:
        raise ValueError(three_part("a requirement", requirement, "one that begins with a name"))
    return found[0]


def lower_bound(requirement: str) -> str:
    """Returns the constraint that holds a requirement at its lower bound.

    Raises:
        ValueError: It has no lower bound, so nobody knows what is promised.
    """
    found = re.search(r">=\s*([0-9][^,;\s]*)", requirement)
    if found is None:
        raise ValueError(three_part("a requirement in setup.cfg", requirement, "one with >="))
    return f"{project_name(requirement)}=={found[1]}"


def wanted(environment: Environment, setup_cfg: str) -> Wanted:
    """Returns what pip is asked for, given the text of setup.cfg."""
    stated = dependencies(setup_cfg, environment.extras)
    # This package itself, so that pip has to agree that the bounds fit together.
    package = f"--editable={ROOT}[{','.join(environment.extras)}]"
    pinned = {project_name(pin) for pin in environment.pins}
    bounds = {lower_bound(line) for line in stated if project_name(line) not in pinned}
    return Wanted(
        requirements=(package, *environment.pins, *_TEST_TOOLS),
        constraints=tuple(sorted(bounds)) if environment.oldest else (),
    )


def packages(setup_cfg: str) -> list[str]:
    """Returns the names of all packages whose versions are shown, MindSpore's first."""
    names = dict.fromkeys(map(project_name, dependencies(setup_cfg, _TRAINING_EXTRAS)))
    return ["mindspore", *(name for name in names if name != "mindspore")]

"""`tools/check fuzz`: runs the fuzzer on targets, each in a process of its own."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Final

import atheris

with atheris.instrument_imports(include=["rec_summary"]):
    from tools.checks.fuzz.targets import TARGETS, checked, seeds

_CORPUS: Final = Path(".fuzz")
_EACH_SECS: Final = 60
_ALONE_SECS: Final = 3600
_LIMITS: Final = ("-timeout=20", "-rss_limit_mb=3000", "-max_len=20000", "-print_final_stats=1")


def main(arguments: list[str]) -> int:
    """Runs the targets; returns 0 if nothing was found."""
    if arguments[:1] == ["--child"]:
        fuzz(arguments[1], arguments[2:])
    if not arguments:
        return max(start(name, [f"-max_total_time={_EACH_SECS}"]) for name in TARGETS)
    name, *rest = arguments
    if name not in TARGETS or len(rest) > 1:
        print(
            f"Received: {' '.join(arguments)}. Expected: one of {', '.join(TARGETS)}, and a number "
            "of seconds or a file.",
            file=sys.stderr,
        )
        return 2
    if rest and not rest[0].isdecimal():
        checked(TARGETS[name], Path(rest[0]).read_bytes())
        return 0
    return start(name, [f"-max_total_time={rest[0] if rest else _ALONE_SECS}"])


def start(name: str, options: list[str]) -> int:
    """Runs the fuzzer on a target, in a process of its own: it never returns."""
    print(f"== {name}", file=sys.stderr)
    corpus = _CORPUS / name
    corpus.mkdir(parents=True, exist_ok=True)
    for data in seeds(name):
        (corpus / hashlib.sha1(data).hexdigest()).write_bytes(data)
    artifacts = f"-artifact_prefix={_CORPUS}/{name}-"
    command = [sys.executable, "-m", "tools.checks.fuzz", "--child", name]
    done = subprocess.run([*command, *options, *_LIMITS, artifacts, str(corpus)], check=False)
    return 1 if done.returncode else 0


def fuzz(name: str, options: list[str]) -> None:
    """Runs the fuzzer in this process, which it ends."""
    warnings.simplefilter("ignore")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    atheris.Setup([name, *options], lambda data: checked(TARGETS[name], data))
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

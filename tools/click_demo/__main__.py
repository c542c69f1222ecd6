"""Runs the demo; `tools/demo` calls this."""

from __future__ import annotations

from .main import main

main(prog_name="tools/demo")

"""A short run of the demo, as records/run-1."""

import subprocess
import sys
from pathlib import Path

options = ["--data", "synthetic", "--steps", "300", "--out", "."]
subprocess.run([sys.executable, "-m", "click_demo", *options], check=True)
[run] = Path("records").iterdir()
run.rename("records/run-1")

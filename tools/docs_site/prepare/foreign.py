"""A record directory written by MindSpore's own collector."""

import runpy
import sys
from pathlib import Path

program = Path(__file__).parents[3] / "tests" / "support" / "programs" / "mindspore_training.py"
sys.argv = [str(program), "summary_dir"]
runpy.run_path(str(program), run_name="__main__")

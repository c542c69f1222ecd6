"""A directory that MindSpore's own collector has written, as it arrives from elsewhere."""

import runpy
import sys
from pathlib import Path

program = Path(__file__).parents[3] / "tests" / "export" / "mindspore_training.py"
sys.argv = [str(program), "summary_dir"]
runpy.run_path(str(program), run_name="__main__")

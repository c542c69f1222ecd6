"""The demo as `tools/demo` runs it, for pages whose reader has just run it."""

import subprocess
import sys

subprocess.run([sys.executable, "-m", "click_demo", "--out", "."], check=True)

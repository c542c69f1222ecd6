"""Jobs of Spark."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import sys
from typing import Any

from rec_summary.engines.engine import Engine
from rec_summary.engines.pool import Pool


class SparkPool(Pool):
    """Jobs of one task each, which threads wait for."""

    package = "pyspark"
    remedy = (
        "a master with workers, or a Java runtime to run Spark here (Debian's default-jre-headless)"
    )

    def __init__(self, module: Any, engine: Engine, stack: contextlib.ExitStack) -> None:
        """Connects, unless this process is connected already.

        Args:
            module: The package.
            engine: The engine; without an address, Spark runs on this machine.
            stack: Ends the threads, and the connection.
        """
        conf = module.SparkConf().setAppName("rec_summary")
        conf.set("spark.ui.showConsoleProgress", "false")
        if engine.address:
            conf.setMaster(f"spark://{engine.address}")
        else:
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        is_new = module.SparkContext._active_spark_context is None
        self._context = module.SparkContext.getOrCreate(conf)
        if is_new:
            stack.callback(self._context.stop)
            self._context.setLogLevel("OFF")
        self.workers = max(1, self._context.defaultParallelism)
        threads = concurrent.futures.ThreadPoolExecutor(2 * self.workers)
        stack.callback(threads.shutdown, wait=False, cancel_futures=True)
        self.submit = lambda *call: threads.submit(self._run_job, *call)

    def _run_job(self, function: Any, *arguments: Any) -> Any:
        one = self._context.parallelize([0], 1)
        return one.map(lambda _: function(*arguments)).collect()[0]

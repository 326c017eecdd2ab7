"""A small cluster of Spark on this machine whose workers seem to be different hosts.

Spark never runs the second attempt of a slow task on the host of the first. The workers of
`local-cluster` are all on one host, so nothing is ever speculated there. Here a master and workers
are processes of their own, each worker on an address of its own of the loopback network.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import pyspark

_SPARK_CLASS = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
_DEPLOY = "org.apache.spark.deploy"
_READY_S = 120.0


@contextmanager
def spark_cluster(folder: Path, *, workers: int = 2, memory: str = "1g") -> Iterator[str]:
    """Run a cluster; yields the address of its master."""
    with ExitStack() as stack:
        started = r"Starting Spark master at (spark://\S+)"
        own = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master = stack.enter_context(_daemon(folder, f"{_DEPLOY}.master.Master", own, started))
        for number in range(workers):
            host = f"127.0.0.{number + 2}"
            asked = ("--host", host, "--cores", "1", "--memory", memory, "--webui-port", "0")
            place = ("--work-dir", str(folder / f"work{number}"), master)
            registered = r"Successfully registered with master (\S+)"
            stack.enter_context(
                _daemon(folder, f"{_DEPLOY}.worker.Worker", (*asked, *place), registered)
            )
        yield master


@contextmanager
def _daemon(folder: Path, name: str, arguments: tuple[str, ...], ready: str) -> Iterator[str]:
    """Run one daemon until its log says what is waited for; yields what that names."""
    logging = folder / "log4j2.properties"
    logging.write_text(
        "rootLogger.level = info\nrootLogger.appenderRef.out.ref = out\n"
        "appender.out.type = Console\nappender.out.name = out\nappender.out.target = SYSTEM_ERR\n"
        "appender.out.layout.type = PatternLayout\nappender.out.layout.pattern = %m%n\n"
    )
    environment = {
        **os.environ,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"-Dlog4j2.configurationFile={logging.as_uri()}",
    }
    command = [_SPARK_CLASS, name, *arguments]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found: list[str] = []
        is_ready = threading.Event()

        def read(log: IO[str]) -> None:
            # The log is read to its end, or the daemon would block on a full pipe.
            for line in log:
                match = re.search(ready, line)
                if match is not None:
                    found.append(match[1])
                    is_ready.set()
            is_ready.set()

        reader = threading.Thread(target=read, args=(process.stderr,))
        reader.start()
        try:
            assert is_ready.wait(_READY_S)
            assert found, f"the daemon ended with {process.poll()}"
            yield found[0]
        finally:
            process.terminate()
            reader.join()

# SPDX-FileCopyrightText: The kvant authors
# SPDX-License-Identifier: Apache-2.0

"""What the machine is, and what else ran on it during a sample. Decides nothing: report.py judges."""

import os
import platform
import resource
import time

# What changes how fast an engine runs without standing on its command line.
SPEED_VARIABLES = ("OMP_", "GOMP_", "KMP_", "GGML_", "LLAMA_", "OPENBLAS_")


def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            for line in stream:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def describe():
    variables = {key: value for key, value in sorted(os.environ.items()) if key.startswith(SPEED_VARIABLES)}
    return {"cpu": cpu_name(), "processors": os.cpu_count(), "usable_processors": len(os.sched_getaffinity(0)),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}", "nice": os.nice(0),
            "environment": variables}


def _processor_seconds():
    """(seconds that processors worked, seconds that the hypervisor took), or None where nobody tells."""
    try:
        with open("/proc/stat", encoding="ascii") as stream:
            ticks = [int(word) for word in stream.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    user, nice, system, _, _, irq, softirq, steal = ticks
    per_second = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + softirq) / per_second, steal / per_second


def _own_seconds():
    """Processor time of this script and of the processes that it has waited for."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


class Watch:
    """Counts what others took from our threads, from its construction to read()."""

    def __init__(self, threads):
        self.threads = threads
        self.start = time.monotonic(), _processor_seconds(), _own_seconds()

    def read(self):
        """wall_s, and as shares: displaced (of what our threads need), steal (of all processors); or nulls."""
        begin, before, own = self.start
        after = _processor_seconds()
        wall = time.monotonic() - begin
        if before is None or after is None or wall <= 0:
            return {"wall_s": wall, "displaced": None, "steal": None}
        processors = os.cpu_count()
        others = max(0.0, after[0] - before[0] - (_own_seconds() - own)) / wall
        # Processors that our threads leave free may be used by anyone.
        displaced = max(0.0, others + self.threads - processors) / self.threads
        return {"wall_s": wall, "displaced": displaced, "steal": (after[1] - before[1]) / (wall * processors)}

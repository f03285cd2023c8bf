"""CPU time of a job, that of its child processes included."""

import psutil


def cpu_seconds() -> float:
    """Of this process and of all that it started, those that have ended included, since each began.

    A difference of two is that of a job where a process does one job at a time, as Dask's workers do; jobs in threads
    of one process each count what the others take meanwhile.
    """
    here = psutil.Process()
    total = 0.0
    for process in (here, *here.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:  # it ended just now, and its parent counts it
            continue
        total += times.user + times.system
        total += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return total

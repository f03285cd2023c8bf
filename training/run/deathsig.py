"""Die with the parent, so that a killed flow leaves no ranks. Separate: it runs with `python -m`.

    python -m gristmill.training.run.deathsig PARENT COMMAND [ARGUMENT ...]

asks the kernel to SIGKILL this process when its parent, process PARENT, ends in any way, and becomes
COMMAND (the request survives exec). Linux only; elsewhere COMMAND is run without that protection.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PARENT = "TRAINING_AGENT_PID"


def die_with_parent(parent: int) -> None:
    """Ask for SIGKILL when the process `parent` ends; exit at once if it has ended already."""
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # it ended before the request was made
        os._exit(128 + signal.SIGKILL)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.environ[PARENT] = str(os.getpid())  # exec keeps the id: COMMAND's children check that they are its own
    os.execv(sys.argv[2], sys.argv[2:])

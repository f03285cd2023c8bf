"""torchrun's agent with an exit code for ranks that were killed. Separate: it runs with `python -m`.

python -m gristmill.training.run.agent [OPTION OF TORCHRUN ...]
"""

import signal
import sys
import traceback

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main

KILLED = 137  # 128 + SIGKILL, as a shell has it
# Not SIGTERM, which the agent sends to the ranks beside a failed one, and not SIGABRT, which is torch's own for errors.
SIGNALS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS)


def run(arguments: list[str]) -> int:
    """torchrun's exit code; KILLED where a rank was ended by a signal, as the kernel does that has no memory left."""
    try:
        main(arguments)
    except ChildFailedError as error:
        traceback.print_exc()
        return KILLED if any(-failure.exitcode in SIGNALS for failure in error.failures.values()) else 1
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))

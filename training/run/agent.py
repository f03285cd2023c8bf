"""torchrun's agent with an exit code for ranks that were killed. Separate: it runs with `python -m`.

python -m gristmill.training.run.agent [OPTION OF TORCHRUN ...]
"""

import signal
import sys
import traceback

from torch.distributed import DistError
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous.api import RendezvousError
from torch.distributed.run import main

LOST, KILLED = 76, 137  # as gristmill.training.run.launch has them
KILLING = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS)
# Beside the rank that ended first: SIGTERM is what the agent sends to the others, SIGABRT what NCCL's watchdog ends a
# rank with whose collective failed.
LOSING = (LOST, -signal.SIGABRT, -signal.SIGTERM)


def run(arguments: list[str]) -> int:
    """torchrun's exit code; KILLED where a rank was ended by a signal, as the kernel does that has no memory left; LOST
    where ranks or agents only lost each other."""
    try:
        main(arguments)
    except ChildFailedError as error:
        traceback.print_exc()
        codes = [failure.exitcode for failure in error.failures.values()]
        if any(-code in KILLING for code in codes):
            return KILLED
        return LOST if all(code in LOSING for code in codes) else 1
    except (DistError, RendezvousError):
        traceback.print_exc()
        return LOST
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))

"""torchrun's agent with an exit code for ranks that were killed: python -m training.agent [OPTION OF TORCHRUN ...]"""

import sys
import traceback

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main

KILLED = 137  # 128 + SIGKILL, as a shell has it


def run(arguments: list[str]) -> int:
    """torchrun's exit code; KILLED where a rank was ended by a signal, as the kernel does that has no memory left."""
    try:
        main(arguments)
    except ChildFailedError as error:
        traceback.print_exc()
        return KILLED if any(failure.exitcode < 0 for failure in error.failures.values()) else 1
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))

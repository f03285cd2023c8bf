"""What the environment of ranks is: threads, memory, network devices, modules; and how many ranks a machine has."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import gristmill

# variables of torchrun, which a run of one process has not
OF_RANKS = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")


def default_processes() -> int:
    """One rank per GPU; 2 on a machine without, so that what runs is sharded training."""
    import torch

    return torch.cuda.device_count() or 2


def environment_of(processes: int, interface: str) -> dict[str, str]:
    here = str(Path(gristmill.__file__).resolve().parents[1])
    device = interface or ("lo0" if sys.platform == "darwin" else "lo")
    path = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), here]
    return {
        # glibc (mallopt(3)): memory that a step frees stays with the process, since allocating pages again
        # cost a tenth of a step on a CPU; the second is the largest that glibc takes
        "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
        "MALLOC_MMAP_THRESHOLD_": str(1 << 25),
        **_allocator(),
        **os.environ,
        "PYTHONSAFEPATH": "1",  # or a file next to the caller could replace a module of the library
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": str(max(1, available_cpus() // processes)),
        "GLOO_SOCKET_IFNAME": device,  # no name lookup, so no network
        "NCCL_SOCKET_IFNAME": device,
    }


def available_cpus(groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Processors that this process may use: by its affinity, within the quota of its container or job
    (https://docs.kernel.org/admin-guide/cgroup-v2.html, cpu.max), rounded up."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = (groups / "cpu.max").read_text().split()
    except (OSError, ValueError):  # no such group, or not of the second version
        return allowed
    return allowed if quota == "max" else max(1, min(allowed, math.ceil(int(quota) / int(period))))


def _allocator() -> dict[str, str]:
    """Memory of a GPU in segments that grow, since activations and gathered weights of many sizes leave gaps between
    fixed ones; unless the user has set the allocator (https://docs.pytorch.org/docs/stable/notes/cuda.html)."""
    names = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    return {} if any(name in os.environ for name in names) else {names[0]: "expandable_segments:True"}

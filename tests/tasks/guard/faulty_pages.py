"""What pages do to the process that works on them; called by name in guarded processes, see test_guard.py."""

import ctypes
import faulthandler
import os
import re
import signal
import sys
import time

from resiliparse.extract.html2text import extract_plain_text


def page(fault, value=None):
    """A page that is well, or has the fault."""
    return FAULTS[fault](value)


def fine(value):
    return {"text": value}


def loop(_):
    while True:
        pass


def loop_in_c(_):
    return {"match": bool(re.match(r"(a|aa)+$", "a" * 200 + "b"))}


def deep(depth):
    return {"text": extract_plain_text("<div>" * depth + "text", main_content=True)}


def sleep(_):
    time.sleep(3600)


def allocate(size):
    kept = []
    for _ in range(size >> 20):
        kept.append(bytearray(1 << 20))
    return {"size": len(kept)}


def allocate_at_once(size):
    return {"size": len(bytearray(size))}


STARTED = []


def slow_start(seconds):
    """What a compiler does at the first call."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    STARTED.append(1)
    return {}


def started(_):
    return {"started": len(STARTED)}


LEAKED = []


def leak(size):
    LEAKED.append(bytearray(size))
    return {"text": "leaked"}


def leaked(_):
    return {"bytes": sum(map(len, LEAKED))}


def crash_later(_):
    """A page that damages its process, so that the next one crashes."""
    LEAKED.append("damaged")
    return {"text": "damaged"}


def innocent(value):
    if "damaged" in LEAKED:
        ctypes.string_at(0)
    return {"text": value}


def segfault(_):
    ctypes.string_at(0)


def abort(_):
    os.abort()


def leave(status):
    os._exit(status)


def stop(status):
    sys.exit(status)


def killed(_):
    os.kill(os.getpid(), signal.SIGKILL)


def killed_once(path):
    """As by the operator, or by a kernel that is out of memory: a second time all is well."""
    if not os.path.exists(path):
        open(path, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"text": "survived"}


def zygote_killed_once(path):
    if not os.path.exists(path):
        open(path, "w").close()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(3600)
    return {"text": "survived"}


def huge(size):
    return {"text": "x" * size}


def echo(value):
    return {"value": value}


def length(value):
    return {"length": len(value)}


def odd(_):
    raise ValueError(f"odd \ud800 {object()!r} {'long ' * 100}")


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no message")


def mute(_):
    raise Mute


def raise_set(_):
    raise KeyError({"alpha", "beta", "gamma", "delta"})


def not_plain(_):
    return {"text": {1, 2}}


def no_dict(_):
    return ["text"]


def noisy(value):
    print("noise " * 1000, flush=True)
    print("noise " * 1000, file=sys.stderr, flush=True)
    os.write(1, b"\0" * 1000)
    os.write(2, b"noise")
    return {"text": value}


def process(_):
    return {
        "process": os.getpid(),
        "zygote": os.getppid(),
        "zygote_threads": len(os.listdir(f"/proc/{os.getppid()}/task")) if sys.platform.startswith("linux") else 1,
        "faults_seen": faulthandler.is_enabled(),
        "threads": [os.environ[name] for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")],
    }


def begun_loop(path):
    """Says which processes there are, and loops."""
    with open(f"{path}.new", "w") as f:
        f.write(f"{os.getpid()} {os.getppid()}")
    os.rename(f"{path}.new", path)
    loop(None)


FAULTS = {name: value for name, value in globals().items() if callable(value) and name != "page"}

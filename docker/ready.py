"""Whether a service is ready: `ready.py http URL`; `ready.py worker` asks Dask's scheduler for the worker of this host.

Exits with 0 or 1.
"""

import json
import socket
import sys
import urllib.request

SECONDS = 10
WORKERS = "http://dask-scheduler:8787/json/identity.json"


def get(url: str) -> bytes:
    """The body of an answer. Raises OSError if there is none, or if it tells of an error."""
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        return answer.read()


def registered() -> bool:
    """Whether the scheduler knows a worker at one of the addresses of this host."""
    hosts = {worker["host"] for worker in json.loads(get(WORKERS))["workers"].values()}
    return not hosts.isdisjoint(info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None))


def main(what: str, url: str = "") -> bool:
    try:
        return registered() if what == "worker" else bool(get(url))
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(not main(*sys.argv[1:]))

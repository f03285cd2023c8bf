"""Whether a service is ready, as the exit status 0 or 1.

ready.py http URL             it answers
ready.py http URL SECRET      it answers the user admin, whose password is the secret of this name
ready.py worker               Dask's scheduler knows a worker of this host
"""

import base64
import json
import socket
import sys
import urllib.request
from pathlib import Path

SECONDS = 10
WORKERS = "http://dask-scheduler:8787/json/identity.json"


def get(url: str, secret: str = "") -> bytes:
    """The body of an answer. Raises OSError if there is none, or if its status is an error."""
    headers = {}
    if secret:
        login = f"admin:{Path('/run/secrets', secret).read_text()}"
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=SECONDS) as answer:
        return answer.read()


def registered() -> bool:
    """Whether the scheduler knows a worker at one of the addresses of this host."""
    hosts = {worker["host"] for worker in json.loads(get(WORKERS))["workers"].values()}
    return not hosts.isdisjoint(info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None))


def main(what: str, *given: str) -> bool:
    try:
        return registered() if what == "worker" else bool(get(*given))
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(not main(*sys.argv[1:]))

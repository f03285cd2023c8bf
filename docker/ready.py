"""Whether a service is ready: `ready.py http URL`, `ready.py scheduler`, `ready.py worker`. Exits with 0 or 1."""

import socket
import sys
import urllib.error
import urllib.request

SECONDS = 10


def http(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            return answer.status == 200
    except urllib.error.HTTPError as error:
        return error.code == 401  # it answers, and asks who we are
    except OSError:
        return False


def workers() -> list[str] | None:
    """The hosts of the workers that the scheduler knows, None if it does not answer."""
    from distributed import Client

    try:
        with Client("tcp://dask-scheduler:8786", timeout=SECONDS, set_as_default=False) as client:
            return [worker["host"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()]
    except OSError:
        return None


def main(what: str, *given: str) -> bool:
    if what == "http":
        return http(*given)
    found = workers()
    if what == "scheduler":
        return found is not None
    ours = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None)}
    return bool(ours & set(found or ()))


if __name__ == "__main__":
    sys.exit(not main(*sys.argv[1:]))

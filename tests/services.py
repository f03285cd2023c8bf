"""The servers of a service as processes on loopback: PostgreSQL, Redis, S3, Prefect, its worker, MLflow, Dask.

    python -m tests.services FOLDER      starts them, prints the environment of their clients, waits for Ctrl-C

PostgreSQL and Redis are the system's. S3 is moto's, in memory.
"""

import base64
import contextlib
import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

POOL = "gristmill"
_READY_SECONDS = 600.0
_POSTGRES = Path("/usr/lib/postgresql")


def missing() -> str:
    """What this machine lacks, empty if all is there."""
    programs = [name for name in ("redis-server", "setpriv") if shutil.which(name) is None]
    programs += [] if list(_POSTGRES.glob("*/bin/initdb")) else ["postgresql"]
    modules = [name for name in ("prefect_redis", "psycopg", "flask_wtf", "moto") if not importlib.util.find_spec(name)]
    return ", ".join([*programs, *modules])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


@dataclass
class Services:
    """`environment`: of clients and workers; `processes`: by name."""

    folder: Path
    environment: dict[str, str]
    processes: dict[str, subprocess.Popen] = field(default_factory=dict)
    commands: dict[str, tuple[list[str], dict[str, str]]] = field(default_factory=dict)

    def start(self, name: str, command: list[str], **environment: str) -> None:
        """Start a process in a group of its own, with its output in `<name>.log`."""
        self.commands[name] = command, environment
        log = open(self.folder / f"{name}.log", "a")
        self.processes[name] = subprocess.Popen(
            command,
            env=self.environment | environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def supervise(self) -> list[str]:
        """Start again what has ended, as a service manager does; the names."""
        dead = [name for name, process in self.processes.items() if process.poll() is not None]
        for name in dead:
            command, environment = self.commands[name]
            self.start(name, command, **environment)
        return dead

    def kill(self, name: str) -> None:
        """SIGKILL to a process and all of its group, and wait for its end."""
        os.killpg(self.processes[name].pid, signal.SIGKILL)
        self.processes[name].wait()

    def stop(self) -> None:
        """End all, each with the processes that it has started: MLflow leaves some behind."""
        for name, process in reversed(self.processes.items()):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT if name == "postgres" else signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def until(self, what: str, done: Callable[[], Any], process: str = "", seconds: float = _READY_SECONDS) -> Any:
        """What `done` returns, once that is true. Raises RuntimeError when the process ends or time is over."""
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError):
                if value := done():
                    return value
            if process and self.processes[process].poll() is not None:
                raise RuntimeError(f"{process} has ended:\n{self.log(process)[-4000:]}")
            if time.monotonic() > end:
                raise RuntimeError(f"no {what} in {seconds:.0f} s")
            time.sleep(0.2)

    def prefect(self, method: str, path: str, body: Any = None) -> Any:
        """An answer of Prefect's API, as its pages ask for it. Raises HTTPError."""
        url = f"{self.environment['PREFECT_API_URL']}{path}"
        return _ask(url, self.environment["PREFECT_API_AUTH_STRING"], method, body)

    def mlflow(self, method: str, path: str, body: Any = None) -> Any:
        """An answer of MLflow's API."""
        given = f"{self.environment['MLFLOW_TRACKING_USERNAME']}:{self.environment['MLFLOW_TRACKING_PASSWORD']}"
        return _ask(f"{self.environment['GRISTMILL_MLFLOW_URI']}/api/2.0/mlflow{path}", given, method, body)

    def command(self, *words: str) -> subprocess.CompletedProcess:
        """A module of Python's, run to its end as a client."""
        return self._run("-m", *words)

    def gristmill(self, *words: str) -> subprocess.CompletedProcess:
        """A command of gristmill's, run to its end as a client."""
        return self._run("-c", "from gristmill.flows.cli import main; main()", *words)

    def _run(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, *words],
            env=self.environment,
            cwd=Path(__file__).resolve().parents[1],
            capture_output=True,
            text=True,
            check=False,
        )


def _ask(url: str, login: str, method: str, body: Any) -> Any:
    headers = {"Content-Type": "application/json"}
    if login:
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=120) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def _answers(url: str) -> Callable[[], bool]:
    def asked() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.status == 200
        except urllib.error.HTTPError as error:
            return error.code == 401

    return asked


def listens(port: int) -> Callable[[], bool]:
    def tried() -> bool:
        socket.create_connection(("127.0.0.1", port), 5).close()
        return True

    return tried


def _postgres(services: Services, data: Path, password: str) -> str:
    """A PostgreSQL with the databases prefect, mlflow and mlflow_auth, in the folder `data` that becomes its own;
    the address without the database."""
    programs = sorted(_POSTGRES.glob("*/bin"))[-1]
    folder = data / "postgres"
    folder.mkdir()
    secret = data / "postgres-password"
    secret.write_text(password)
    user: list[str] = []
    if os.getuid() == 0:  # as which it refuses to run
        user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        for path in (data, folder, secret):
            shutil.chown(path, "postgres", "postgres")
    made = [str(programs / "initdb"), "-D", str(folder), "-U", "gristmill", "-A", "scram-sha-256", "-E", "UTF8"]
    subprocess.run([*user, *made, f"--pwfile={secret}"], check=True, capture_output=True, cwd="/")
    port = free_port()
    options = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={folder}", "-p", str(port)]
    services.start("postgres", [*user, str(programs / "postgres"), "-D", str(folder), *options])
    at = f"gristmill:{password}@127.0.0.1:{port}"
    client = services.environment | {"PGPASSWORD": password}
    where = ["-h", "127.0.0.1", "-p", str(port), "-U", "gristmill"]

    def ready() -> bool:
        return subprocess.run([programs / "pg_isready", *where], env=client, capture_output=True).returncode == 0

    services.until("PostgreSQL", ready, "postgres")
    for name in ("prefect", "mlflow", "mlflow_auth"):
        subprocess.run([programs / "createdb", *where, name], env=client, check=True, capture_output=True)
    return at


def _redis(services: Services, password: str) -> int:
    port = free_port()
    folder = services.folder / "redis"
    folder.mkdir()
    given = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder), "--requirepass", password]
    services.start("redis", ["redis-server", *given, "--appendonly", "yes"])
    services.until("Redis", listens(port), "redis")
    return port


def start_s3(services: Services) -> None:
    """moto's server, with the buckets gristmill and mlflow."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    services.start("s3", [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)])
    services.environment |= {
        "AWS_ENDPOINT_URL": address,
        "MLFLOW_S3_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "miller",
        "AWS_SECRET_ACCESS_KEY": "grist",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    services.until("S3", listens(port), "s3")
    for bucket in ("gristmill", "mlflow"):
        _ask(f"{address}/{bucket}", "", "PUT", None)


def start_dask(services: Services, workers: int) -> None:
    """A scheduler and workers, one thread each, which clients take as their executor; all show one certificate."""
    port = free_port()
    address = f"tls://127.0.0.1:{port}"
    given = write_certificate(services.folder)
    tls = ["--tls-ca-file", given["CA"], "--tls-cert", given["CERT"], "--tls-key", given["KEY"]]
    python = [sys.executable, "-m"]
    # without an address, what answers for the health of each listens everywhere, also without a dashboard
    common = ["--host", "127.0.0.1", "--protocol", "tls", "--no-dashboard", "--dashboard-address", "127.0.0.1:0", *tls]
    unwatched = {"DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False"}  # as in the image of docker/
    command = [*python, "distributed.cli.dask_scheduler", "--port", str(port), *common]
    services.start("dask-scheduler", command, **unwatched)
    services.until("Dask scheduler", listens(port), "dask-scheduler")
    for number in range(workers):
        services.start(
            f"dask-worker-{number}",
            [
                *(*python, "distributed.cli.dask_worker", address, "--nthreads", "1", *common),
                *("--local-directory", str(services.folder / f"worker-{number}")),
            ],
            **unwatched,
        )
    services.environment |= {"GRISTMILL_EXECUTOR": "dask", "GRISTMILL_DASK_ADDRESS": address}
    services.environment |= {f"GRISTMILL_DASK_TLS_{name}": path for name, path in given.items()}


def write_certificate(folder: Path) -> dict[str, str]:
    """Files of a new certificate, made as docker/secrets.sh does, by the last words of GRISTMILL_DASK_TLS_*."""
    cert, key = str(folder / "dask.crt"), str(folder / "dask.key")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=gristmill-dask"]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return {"CA": cert, "CERT": cert, "KEY": key}


@contextmanager
def begun(folder: Path) -> Iterator[Services]:
    """No server yet; those that the block starts, in a folder of their own, end with it."""
    folder.mkdir(parents=True, exist_ok=True)
    theirs = ("PREFECT_", "GRISTMILL_", "MLFLOW_", "AWS_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
    here = str(Path(__file__).resolve().parents[1])
    path = [here, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path))
    services = Services(folder, environment)
    try:
        yield services
    finally:
        services.stop()


@contextmanager
def serve(folder: Path, workers: int = 2, deployments: bool = True) -> Iterator[Services]:
    """All servers, ready, in a folder of their own; they end with the block.

    `workers`: Dask workers, one thread each. `deployments`: with those of prefect.yaml, and a worker of their pool.
    """
    # not in a folder of pytest's: each pytest that starts takes other users' rights from those of all that run
    with tempfile.TemporaryDirectory(prefix="gristmill-services-") as data, begun(folder) as services:
        _serve(services, Path(data), workers)
        if deployments:
            _deploy(services)
        yield services


def _serve(services: Services, data: Path, workers: int) -> None:
    environment, folder = services.environment, services.folder
    python = [sys.executable, "-m"]
    words = {name: secrets.token_hex(8) for name in ("postgres", "redis", "prefect", "mlflow")}
    at = _postgres(services, data, words["postgres"])
    redis = _redis(services, words["redis"])

    start_s3(services)
    api, tracking = free_port(), free_port()
    environment |= {
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_API_URL": f"http://127.0.0.1:{api}/api",
        "PREFECT_API_AUTH_STRING": f"admin:{words['prefect']}",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        "MLFLOW_TRACKING_USERNAME": "admin",
        "MLFLOW_TRACKING_PASSWORD": words["mlflow"],
        "GRISTMILL_HOME": "s3://gristmill/home",
        "GRISTMILL_LOCAL": str(folder / "local"),
        "GRISTMILL_MLFLOW_URI": f"http://127.0.0.1:{tracking}",
    }
    services.start(
        "prefect",
        [*python, "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(api)],
        PREFECT_SERVER_DATABASE_CONNECTION_URL=f"postgresql+asyncpg://{at}/prefect",
        PREFECT_SERVER_API_AUTH_STRING=environment["PREFECT_API_AUTH_STRING"],
        # seconds: by default 5 and 10, which are too few where all share two busy cores
        PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT="60",
        PREFECT_SERVER_DATABASE_TIMEOUT="60",
        PREFECT_MESSAGING_BROKER="prefect_redis.messaging",
        PREFECT_MESSAGING_CACHE="prefect_redis.messaging",
        PREFECT_SERVER_EVENTS_CAUSAL_ORDERING="prefect_redis.ordering",
        PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE="prefect_redis.lease_storage",
        PREFECT_REDIS_MESSAGING_HOST="127.0.0.1",
        PREFECT_REDIS_MESSAGING_PORT=str(redis),
        PREFECT_REDIS_MESSAGING_PASSWORD=words["redis"],
    )
    auth = folder / "mlflow-auth.ini"
    auth.write_text(
        f"[mlflow]\ndefault_permission = NO_PERMISSIONS\ndatabase_uri = postgresql+psycopg://{at}/mlflow_auth\n"
    )
    services.start(
        "mlflow",
        [
            *(*python, "mlflow", "server", "--app-name", "basic-auth", "--host", "127.0.0.1", "--port", str(tracking)),
            *("--workers", "1", "--backend-store-uri", f"postgresql+psycopg://{at}/mlflow"),
            *("--artifacts-destination", "s3://mlflow/artifacts"),
        ],
        MLFLOW_AUTH_CONFIG_PATH=str(auth),
        MLFLOW_AUTH_ADMIN_USERNAME="admin",
        MLFLOW_AUTH_ADMIN_PASSWORD=words["mlflow"],
        MLFLOW_FLASK_SERVER_SECRET_KEY=secrets.token_hex(16),
        MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false",  # five processes for jobs that nobody has asked for
    )
    start_dask(services, workers)
    services.until("Prefect", _answers(f"http://127.0.0.1:{api}/api/ready"), "prefect")
    # /health answers long before the first question of a user does
    services.until("MLflow", lambda: services.mlflow("GET", "/experiments/search?max_results=1"), "mlflow")


def _deploy(services: Services) -> None:
    for words in (
        ("work-pool", "create", POOL, "--type", "process"),
        ("work-pool", "set-concurrency-limit", POOL, "1"),
        ("--no-prompt", "deploy", "--all"),
    ):
        done = services.command("prefect", *words)
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
    services.start("worker", [sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL])


if __name__ == "__main__":
    with serve(Path(sys.argv[1]).resolve()) as running:
        for name in sorted(set(running.environment) - set(os.environ)):
            print(f"export {name}='{running.environment[name]}'", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            signal.pause()

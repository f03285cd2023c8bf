"""A service on several machines of `tests.namespaces`, and runs on it.

Machine `a` has the flow, Dask's scheduler, Prefect's server and MLflow; machine `s` the object store; `w1` and `w2` are
Dask workers. What one knows of another is an address: each has its own home, local folder, caches and temporary folder,
and its own copy of compiled kernels, certificate and recipe.
"""

import json
import os
import re
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from gristmill.tasks.kernels.compiled import FOLDER as KERNELS
from tests.namespaces import INTERFACE, NETWORK, Machine, Machines, Process, until
from tests.services import write_certificate

NUMBERS = {"a": 1, "s": 2, "w1": 11, "w2": 12}
ROOT = str(Path(__file__).resolve().parents[1])
COMMAND = ("-c", "import sys; from gristmill.flows.cli import main; main()")
_BUCKET = "gristmill"
# Run where the store is: the digests of token shards, by the names of their files.
_SHARDS = """
import json, sys
from gristmill.storage import files
folder = sys.argv[1] + "/stages"
stages = [name for name in files.names(folder) if name.startswith("tokens-")]
print(json.dumps({f"{stage}/{name}": files.checksum(f"{folder}/{stage}/{name}")
                  for stage in stages for name in files.names(f"{folder}/{stage}") if name.endswith(".bin")}))
"""
# The digest of the weights of a run, and what it says of itself.
_MODEL = """
import json, sys
from gristmill.storage import files
folder = sys.argv[1] + "/stages"
(stage,) = [name for name in files.names(folder) if name.startswith("model-")]
at = f"{folder}/{stage}"
print(json.dumps([files.checksum(f"{at}/model.safetensors"), files.read_json(f"{at}/result.json"), at]))
"""
# The largest difference of two files of weights.
_DIFFERENCE = """
import sys
from gristmill.storage import files
from safetensors.numpy import load
one, other = (load(files.read_bytes(path)) for path in sys.argv[1:])
assert one.keys() == other.keys()
print(max(abs(one[name] - other[name]).max() for name in one))
"""
# A home of the same stages, but for models.
_COPY = """
import sys, fsspec
fs, (one, other) = fsspec.filesystem("s3"), sys.argv[1:]
for path in fs.find(one + "/stages"):
    if "/stages/model-" not in path:
        fs.copy(path, path.replace(one.partition("://")[2], other.partition("://")[2], 1))
"""
_UPLOAD = """
import sys, fsspec
fs = fsspec.filesystem("s3")
fs.mkdir("gristmill")
fs.put(sys.argv[1] + "/", "gristmill/crawl/", recursive=True)
"""


def environment() -> dict[str, str]:
    """Of all processes on all machines."""
    theirs = ("PREFECT_", "GRISTMILL_", "MLFLOW_", "AWS_", "XDG_")
    given = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
    return given | {
        "PYTHONPATH": ROOT,
        "PYTHONDONTWRITEBYTECODE": "1",
        "AWS_ENDPOINT_URL": f"http://{NETWORK}.{NUMBERS['s']}:9000",
        "AWS_ACCESS_KEY_ID": "miller",
        "AWS_SECRET_ACCESS_KEY": "grist",
        "AWS_DEFAULT_REGION": "us-east-1",
        "GRISTMILL_STEPS": "tests.slow_step",
        "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    }


@dataclass
class Service:
    machines: Machines
    recipe: dict
    certificate: Path
    workers: dict[str, Process] = field(default_factory=dict)
    started: dict[str, Process] = field(default_factory=dict)

    def machine(self, name: str) -> Machine:
        """A machine, which is started if it is off, with what is installed on it: kernels, certificate, recipe."""
        if name in self.machines.running:
            return self.machines.running[name]
        machine = self.machines.boot(name, NUMBERS[name])
        own = machine.disk / machine.name
        shutil.copytree(KERNELS, own / "home" / ".cache" / "gristmill" / KERNELS.name)
        (own / "home" / ".cache" / "gristmill").chmod(0o700)
        for path in self.certificate.iterdir():
            shutil.copy(path, own)
        (own / "recipe.yaml").write_text(yaml.safe_dump(self.recipe))
        return machine

    def begin(self, crawl: Path) -> None:
        """Start the servers, and put the files of a crawl into the store."""
        store, a = self.machine("s"), self.machine("a")
        self._serve(store, "s3", "tests.troubled_store", store.address, "9000", f"{store.home}/trouble")
        shutil.copytree(crawl, store.disk / store.name / "crawl")
        until("store", lambda: self._listens(store, 9000), self.started["s3"])
        self.machines.ask(store, sys.executable, "-c", _UPLOAD, f"{store.home}/crawl")
        folders = {"PREFECT_HOME": f"{a.home}/prefect", "PREFECT_SERVER_UI_ENABLED": "false"}
        prefect = ("prefect", "server", "start", "--host", a.address, "--port", "4200")
        self._serve(a, "prefect", *prefect, **folders)
        where = ("--backend-store-uri", f"sqlite:///{a.home}/mlflow.db", "--artifacts-destination", f"{a.home}/kept")
        mlflow = ("mlflow", "server", "--host", a.address, "--port", "5000", "--workers", "1", *where)
        self._serve(a, "mlflow", *mlflow, MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false")
        dask = ("distributed.cli.dask_scheduler", "--port", "8786", *self._dask(a))
        self._serve(a, "scheduler", *dask)
        for name, port in (("prefect", 4200), ("mlflow", 5000), ("scheduler", 8786)):
            until(name, lambda port=port: self._listens(a, port), self.started[name])

    def worker(self, name: str) -> Process:
        """The Dask worker of a machine, started anew."""
        machine = self.machine(name)
        scheduler = f"tls://{NETWORK}.{NUMBERS['a']}:8786"
        words = ("distributed.cli.dask_worker", scheduler, "--nthreads", "1", *self._dask(machine))
        local = ("--local-directory", f"{machine.home}/dask")
        process = self._serve(machine, "worker", *words, *local)
        self.workers[name] = process
        return process

    def gristmill(self, run: str, name: str, *words: str, **settings: str) -> Process:
        """A command of a run, on a machine, with a home of the run's own."""
        machine = self.machine(name)
        a = f"{NETWORK}.{NUMBERS['a']}"
        given = {
            "home": self.home(run),
            "local": f"{machine.home}/local-{run}",
            "executor": "dask",
            "dask_address": f"tls://{a}:8786",
            **{f"dask_tls_{file[:-4]}": f"{machine.home}/{path}" for file, path in _FILES.items()},
            "mlflow_uri": f"http://{a}:5000",
            **settings,
        }
        environment = {f"GRISTMILL_{setting.upper()}": value for setting, value in given.items()}
        environment["PREFECT_API_URL"] = f"http://{a}:4200/api"
        environment["PREFECT_HOME"] = f"{machine.home}/client"
        return self.machines.start(machine, f"{run}-{words[0]}", sys.executable, *COMMAND, *words, **environment)

    def home(self, run: str) -> str:
        return f"s3://{_BUCKET}/{run}"

    def done(self, run: str, stage: str) -> int:
        """How many jobs of a stage are marked as done, by the store's log."""
        put = re.compile(rf'"PUT /{_BUCKET}/{run}/stages/{stage}-\w+/done/(\S+) HTTP/1.1" 200')
        return len(set(put.findall(self.started["s3"].said())))

    def token_shards(self, run: str) -> dict[str, str]:
        """The digests of the token shards of a run, by their stage and name."""
        return json.loads(self.machines.ask(self.machine("s"), sys.executable, "-c", _SHARDS, self.home(run)))

    def copy(self, run: str, to: str) -> None:
        """Give the home of a run all stages of another one but models."""
        homes = self.home(run), self.home(to)
        self.machines.ask(self.machine("s"), sys.executable, "-c", _COPY, *homes, seconds=300)

    def weights(self, run: str) -> str:
        """The digest of the weights of a run."""
        return self._model(run)[0]

    def result(self, run: str) -> dict:
        """What the training of a run says of itself."""
        return self._model(run)[1]

    def difference(self, run: str, other: str) -> float:
        """The largest one of the weights of two runs."""
        paths = [f"{self._model(each)[2]}/model.safetensors" for each in (run, other)]
        return float(self.machines.ask(self.machine("s"), sys.executable, "-c", _DIFFERENCE, *paths))

    def _model(self, run: str) -> list:
        return json.loads(self.machines.ask(self.machine("s"), sys.executable, "-c", _MODEL, self.home(run)))

    def training(self, name: str) -> dict[str, str]:
        """Settings of a machine for a training on `a` and `w1`."""
        return {
            "executor": "serial",
            "training_nodes": "2",
            "training_node": str(("a", "w1").index(name)),
            "training_rendezvous": f"{NETWORK}.{NUMBERS['a']}:29500",
            "training_interface": INTERFACE,
            "training_processes": "1",
        }

    def trouble(self, **what: float) -> None:
        """What the store does to requests from now on; nothing: it is well again."""
        path = self.machine("s").disk / "s" / "trouble"
        written = path.with_suffix(".next")
        written.write_text(json.dumps(what))
        os.replace(written, path)

    def _dask(self, machine: Machine) -> tuple[str, ...]:
        tls = ("--tls-ca-file", f"{machine.home}/dask.crt", "--tls-cert", f"{machine.home}/dask.crt")
        common = ("--no-dashboard", "--dashboard-address", f"{machine.address}:0", "--protocol", "tls")
        return (*common, "--host", machine.address, *tls, "--tls-key", f"{machine.home}/dask.key")

    def _serve(self, machine: Machine, name: str, *words: str, **environment: str) -> Process:
        process = self.machines.start(machine, name, sys.executable, "-m", *words, **environment)
        self.started[name] = process
        return process

    def _listens(self, machine: Machine, port: int) -> bool:
        try:
            program = f"import socket; socket.create_connection(({machine.address!r}, {port}), 5).close()"
            self.machines.ask(machine, sys.executable, "-c", program)
        except RuntimeError:
            return False
        return True


_FILES = {"ca.pem": "dask.crt", "cert.pem": "dask.crt", "key.pem": "dask.key"}


def service(machines: Machines, recipe: dict, crawl: Path, certificate: Path) -> Service:
    """All servers, ready. `recipe`: whose sources name files of the folder `crawl`, which goes into the store."""
    certificate.mkdir()
    write_certificate(certificate)
    sources = [
        source | {"warc": [f"s3://{_BUCKET}/crawl/{Path(path).name}" for path in source["warc"]]}
        for source in recipe["sources"]
    ]
    made = Service(machines, recipe | {"sources": sources}, certificate)
    made.begin(crawl)
    return made


def train(service: Service, run: str) -> tuple[Process, Process]:
    """The training of a run whose tokens are finished, on `a` and on `w1`."""
    found = []
    for name, command in (("a", ("run",)), ("w1", ("train", "join"))):
        recipe = f"{service.machine(name).home}/recipe.yaml"
        found.append(service.gristmill(run, name, *command, recipe, **service.training(name)))
    return found[0], found[1]


@dataclass(frozen=True)
class Outcome:
    """A line of the table."""

    trouble: str
    rc: int
    seconds: float
    said: list[str]
    equal: bool

    def line(self) -> str:
        equal = "equal" if self.equal else "DIFFER"
        return f"{self.trouble:<44} {self.rc:>3} {self.seconds:>6.0f} s {len(self.said):>3} {equal}"


def said(log: str) -> list[str]:
    """Lines of a run's log that are warnings or errors, and heads of tracebacks."""
    return [line for line in log.splitlines() if re.match(r"\S+ (\| )?(WARNING|ERROR|CRITICAL)\b|Traceback", line)]


def finish(service: Service, run: str, trouble: str, began: float, process: Process, expected: dict) -> Outcome:
    """Wait for the end of a run, and compare its token shards."""
    rc = process.popen.wait(1500)
    seconds = time.monotonic() - began
    found = service.token_shards(run)
    return Outcome(trouble, rc, seconds, said(process.said()), bool(found) and found == expected)

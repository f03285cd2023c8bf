"""Runs of the deployments on the servers of `tests.services`, asked for and looked at as Prefect's pages do."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import yaml

from gristmill.storage import files, layout
from tests.services import Services

OPEN = ["PENDING", "RUNNING", "CANCELLING"]
ENDED = ["COMPLETED", "FAILED", "CRASHED", "CANCELLED"]
RETRY = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}}
# They name the home and MLflow's run, or say how fast it was.
OF_ONE_RUN = ("run.json", "timing.jsonl")
_PUT = re.compile(r'"PUT /gristmill/([^/]+)/stages/(\S+/done/\S+) HTTP/1.1" 200')


def named(recipe: dict, name: str) -> dict[str, str]:
    """A recipe as YAML text, under another name: of the same stages, and with an experiment of its own."""
    return {"yaml": yaml.safe_dump(recipe | {"name": name})}


# The deployment of each flow that has no schedule.
BY_HAND = {
    "pipeline": "crawl-to-model",
    "corpus": "curate",
    "tokens": "tokenize",
    "pretrain": "train",
    "ablate": "compare",
}


@dataclass(frozen=True)
class Home:
    """A home of its own in the services' S3, and a local folder for it."""

    services: Services
    name: str

    @property
    def address(self) -> str:
        return f"s3://gristmill/{self.name}"

    @property
    def environment(self) -> dict[str, str]:
        return {"GRISTMILL_HOME": self.address, "GRISTMILL_LOCAL": str(self.services.folder / f"local-{self.name}")}

    def ask(self, flow: str, recipe: object) -> str:
        """A run of the deployment without a schedule of a flow in this home; its id. Raises HTTPError."""
        deployment = self.services.prefect("GET", f"/deployments/name/{flow}/{BY_HAND[flow]}")["id"]
        given = {"parameters": {"recipe": recipe}, "job_variables": {"env": self.environment}}
        return self.services.prefect("POST", f"/deployments/{deployment}/create_flow_run", given)["id"]

    def stages(self) -> dict[str, str]:
        """Folders of all stages, finished or not, by name and key."""
        folder = f"{self.address}/stages"
        return {label: f"{folder}/{label}" for label in files.names(folder)}

    def finished(self, stage: str) -> bool:
        return any(layout.manifest(folder) is not None for name, folder in self.stages().items() if _is_of(name, stage))

    def markers(self, stage: str) -> int:
        """How many jobs of a stage, by its name, are marked as done."""
        return sum(len(files.names(f"{folder}/done")) for name, folder in self.stages().items() if _is_of(name, stage))

    def written(self) -> Counter[str]:
        """How often each done marker was written, by the store's log: more than once, if a job was done again."""
        found = (match.groups() for match in _PUT.finditer(self.services.log("s3")))
        return Counter(marker for home, marker in found if home == self.name)

    def leases(self) -> list[str]:
        return [label for label, folder in self.stages().items() if files.names(f"{folder}/lease")]

    def contents(self) -> dict[str, str]:
        """The digests of all files that the jobs of the stages have written, by their names."""
        return {
            f"{label}/{name}": files.checksum(f"{folder}/{name}")
            for label, folder in self.stages().items()
            for part in layout.parts(folder, layout.manifest(folder) or {})
            for name in part.files
            if name not in OF_ONE_RUN
        }


def _is_of(label: str, stage: str) -> bool:
    return label.rpartition("-")[0] == stage


def flow_run(services: Services, run: str) -> dict:
    return services.prefect("GET", f"/flow_runs/{run}")


def state(services: Services, run: str) -> str:
    """The type of its state."""
    return flow_run(services, run)["state"]["type"]


def ended(services: Services, run: str, seconds: float = 1800) -> str:
    """The type of the state in which the run has ended."""
    return services.until(f"end of {run}", lambda: (now := state(services, run)) in ENDED and now, seconds=seconds)


def cancel(services: Services, run: str) -> None:
    """What the button Cancel asks for."""
    asked = {"state": {"type": "CANCELLING", "name": "Cancelling"}}
    assert services.prefect("POST", f"/flow_runs/{run}/set_state", asked)["status"] == "ACCEPT"


def retry(services: Services, run: str) -> None:
    """What the button Retry asks for, until the run has begun again.

    A worker of Prefect's reports the end of a killed process twice, seconds apart; the second report ends a retry that
    has not begun.
    """
    before = flow_run(services, run)["run_count"]

    def begun() -> bool:
        now = flow_run(services, run)
        if now["run_count"] == before and now["state"]["type"] in ENDED:
            assert services.prefect("POST", f"/flow_runs/{run}/set_state", RETRY)["status"] == "ACCEPT"
        return now["run_count"] > before

    services.until(f"retry of {run}", begun)


def all_open(services: Services) -> list[str]:
    """Names of the flow runs and task runs that are open."""
    given = {"state": {"type": {"any_": OPEN}}}
    flows = services.prefect("POST", "/flow_runs/filter", {"flow_runs": given})
    tasks = services.prefect("POST", "/task_runs/filter", {"task_runs": given})
    return [run["name"] for run in (*flows, *tasks)]


def all_ended(services: Services) -> None:
    """Wait until no record is open. Prefect's server writes those of tasks behind those of flows."""
    services.until("end of all records", lambda: not all_open(services), seconds=120)


def processes(run: str) -> list[psutil.Process]:
    """Those that were started for a flow run, orphans included."""
    return [process for process, environment in _environments() if environment.get("PREFECT__FLOW_RUN_ID") == run]


def _environments() -> Iterator[tuple[psutil.Process, dict[str, str]]]:
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                yield process, process.environ()
        except psutil.Error:
            continue


def flow_process(services: Services, run: str) -> psutil.Process:
    """The process in which a worker runs a flow."""
    below = psutil.Process(services.processes["worker"].pid).children(recursive=True)
    (found,) = [process for process in below if process in processes(run) and "prefect" in " ".join(process.cmdline())]
    return found


def listening(services: Services) -> set[str]:
    """Where the services' processes, and those that they have started, listen, by TCP or UDP."""
    found = set()
    for started in services.processes.values():
        for process in (psutil.Process(started.pid), *psutil.Process(started.pid).children(recursive=True)):
            try:
                # an unconnected end, also of UDP
                found |= {each.laddr.ip for each in process.net_connections() if each.laddr and not each.raddr}
            except psutil.NoSuchProcess:
                continue
    return found

"""The services of docker/ as containers, from packages: `make images DEBIAN=1 BASE=...` makes their images first."""

import io
import json
import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from tests import service_runs as service
from tests.services import Services, free_port

pytestmark = [pytest.mark.docker, pytest.mark.timeout(3600)]
ROOT = Path(__file__).resolve().parents[2]
PROJECT = "gristmill-test"
IMAGES = ("gristmill:latest", "gristmill-services:latest")


def run(*words: str, given: bytes | None = None, check: bool = True) -> str:
    done = subprocess.run(words, cwd=ROOT, input=given, capture_output=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.decode()[-4000:]}")
    return done.stdout.decode()


def missing() -> str:
    """What this machine lacks, empty if all is there."""
    if shutil.which("docker") is None:
        return "docker"
    for image in IMAGES:
        if subprocess.run(["docker", "image", "inspect", image], capture_output=True).returncode:
            return f"the image {image} (make images DEBIAN=1 BASE=...), or the Docker engine"
    return ""


class Containers(Services):
    """The services of the compose files, as a client on the host sees them."""

    def compose(self, *words: str, given: bytes | None = None, check: bool = True) -> str:
        plugin = subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0
        files = ["-f", "docker/compose.yaml", "-f", "docker/compose.debian.yaml"]
        command = ["docker", "compose"] if plugin else ["docker-compose"]
        return run(*command, "--project-name", PROJECT, *files, *words, given=given, check=check)

    def log(self, name: str) -> str:
        return self.compose("logs", "--no-color", name)

    def inspect(self, name: str) -> dict:
        (found,) = json.loads(run("docker", "inspect", self.compose("ps", "--all", "--quiet", name).strip()))
        return found

    def address(self, name: str, network: str = "inner") -> str:
        return self.inspect(name)["NetworkSettings"]["Networks"][f"{PROJECT}_{network}"]["IPAddress"]

    def names(self) -> list[str]:
        return self.compose("config", "--services").split()


@pytest.fixture(scope="module")
def containers(tmp_path_factory) -> Iterator[Containers]:
    if lacking := missing():
        pytest.skip(f"this machine lacks {lacking}")
    ports = {"GRISTMILL_PREFECT_PORT": str(free_port()), "GRISTMILL_MLFLOW_PORT": str(free_port())}
    run("docker/secrets.sh")
    secrets = ROOT / "docker/secrets"
    clients = {
        "PREFECT_API_URL": f"http://127.0.0.1:{ports['GRISTMILL_PREFECT_PORT']}/api",
        "PREFECT_API_AUTH_STRING": f"admin:{(secrets / 'prefect').read_text()}",
        "GRISTMILL_MLFLOW_URI": f"http://127.0.0.1:{ports['GRISTMILL_MLFLOW_PORT']}",
        "MLFLOW_TRACKING_USERNAME": "admin",
        "MLFLOW_TRACKING_PASSWORD": (secrets / "mlflow").read_text(),
    }
    running = Containers(tmp_path_factory.mktemp("containers"), clients)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ports.items():
            patch.setenv(name, value)
        patch.setenv("COMPOSE_HTTP_TIMEOUT", "600")
        try:
            running.compose("up", "--detach")
            yield running
        finally:
            running.compose("down", "--volumes")


def test_every_service_becomes_healthy(containers):
    def health() -> dict[str, str]:
        return {
            name: containers.inspect(name)["State"]["Health"]["Status"]
            for name in containers.names()
            if name != "setup"
        }

    containers.until("health", lambda: set(health().values()) == {"healthy"})
    setup = containers.inspect("setup")["State"]
    assert (setup["Status"], setup["ExitCode"]) == ("exited", 0)


def test_every_process_is_of_a_user_without_rights(containers):
    for name in containers.names():
        if name != "setup":
            status = containers.compose("exec", "-T", name, "cat", "/proc/1/status")
            fields = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
            assert "0" not in fields["Uid"].split(), name
            assert int(fields["CapEff"], 16) == 0, name


def test_only_loopback_is_published(containers):
    published = set()
    for name in containers.names():
        for bound in containers.inspect(name)["NetworkSettings"]["Ports"].values():
            published |= {(name, port["HostIp"]) for port in bound or ()}
    assert published == {("prefect", "127.0.0.1"), ("mlflow", "127.0.0.1")}


def test_an_unauthenticated_call_is_refused(containers):
    for url in (
        containers.environment["PREFECT_API_URL"] + "/admin/version",
        containers.environment["GRISTMILL_MLFLOW_URI"] + "/api/2.0/mlflow/experiments/search?max_results=1",
    ):
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(url, timeout=30)
        assert error.value.code == 401
    assert containers.prefect("GET", "/admin/version")
    assert "experiments" in containers.mlflow("GET", "/experiments/search?max_results=1")


def test_databases_store_and_dask_are_reached_from_their_network_alone(containers):
    """Asked from a container in it, and from one that is outside of it."""
    ends = [
        (containers.address(name), port)
        for name, port in (("postgres", 5432), ("redis", 6379), ("s3", 9000), ("dask-scheduler", 8786))
    ]
    asked = "import json, socket, sys\nfound = []\n"
    asked += "for host, port in json.loads(sys.argv[1]):\n"
    asked += "    try: socket.create_connection((host, port), 5); found.append(True)\n"
    asked += "    except OSError: found.append(False)\n"
    asked += "print(json.dumps(found))"
    for network, answer in ((f"{PROJECT}_inner", True), ("bridge", False)):
        given = ["docker", "run", "--rm", "--network", network, IMAGES[0], "python3", "-c", asked, json.dumps(ends)]
        assert json.loads(run(*given)) == [answer] * len(ends), network


def test_no_kernel_is_left_to_compile(containers):
    for name in ("worker", "dask-worker"):
        assert "already compiled" in containers.compose("exec", "-T", name, "gristmill", "home", "compile")


def transitions(containers: Containers) -> int:
    """How often a job has changed its state at Dask's scheduler."""
    asked = "from distributed import Client\nfrom gristmill.flows.machine.settings import MachineSettings\n"
    asked += "m = MachineSettings()\nclient = Client(m.dask_address, security=m.dask_tls.security())\n"
    asked += "print(client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.transition_counter))"
    client = ("/opt/gristmill/docker/entrypoint.sh", "python3", "-c", asked)  # which knows the certificate
    return int(containers.compose("exec", "-T", "worker", *client))


def test_a_scheduled_run_starts_by_itself_and_trains_and_is_tracked(containers, crawl, recipe):
    put = "import sys, tarfile, s3fs\nstore = s3fs.S3FileSystem()\n"
    put += "for one in (given := tarfile.open(fileobj=sys.stdin.buffer, mode='r|')):\n"
    put += "    store.pipe_file(f's3://gristmill/crawl/{one.name}', given.extractfile(one).read())"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path in crawl.folder.glob("*.warc.gz"):
            tar.add(path, path.name)
    words = ("/opt/gristmill/docker/entrypoint.sh", "python3", "-c", put)
    containers.compose("exec", "-T", "worker", *words, given=packed.getvalue())
    sources = [{"name": name, "warc": [f"s3://gristmill/crawl/{name}-*.warc.gz"]} for name in ("web", "reference")]
    before = transitions(containers)
    deployment = containers.prefect("GET", "/deployments/name/pipeline/nightly-demo")["id"]
    schedule = {
        "active": True,
        # a busy server may miss the first
        "schedule": {"interval": 300, "anchor_date": (datetime.now(UTC) + timedelta(seconds=30)).isoformat()},
        "parameters": {"recipe": {"yaml": yaml.safe_dump(recipe | {"sources": sources})}},
        "slug": "soon",
    }
    [made] = containers.prefect("POST", f"/deployments/{deployment}/schedules", [schedule])

    def begun() -> str:
        states = {"type": {"any_": ["RUNNING", *service.ENDED]}}
        given = {"flow_runs": {"deployment_id": {"any_": [deployment]}, "state": states}}
        found = containers.prefect("POST", "/flow_runs/filter", given)
        return found[0]["id"] if found else ""

    flow_run = containers.until("scheduled run", begun)
    containers.prefect("DELETE", f"/deployments/{deployment}/schedules/{made['id']}")
    assert service.ended(containers, flow_run) == "COMPLETED", containers.log("worker")[-4000:]
    service.all_ended(containers)
    assert transitions(containers) > before
    listed = "import s3fs; print(*s3fs.S3FileSystem().ls('gristmill/home/stages'))"
    stages = containers.compose("exec", "-T", "worker", "/opt/gristmill/docker/entrypoint.sh", "python3", "-c", listed)
    names = {label.rpartition("/")[2].rpartition("-")[0] for label in stages.split()}
    assert {"documents", "near_duplicates", "tokens", "model"} <= names
    experiment = containers.mlflow("GET", f"/experiments/get-by-name?experiment_name={recipe['name']}")["experiment"]
    tracked = containers.mlflow("POST", "/runs/search", {"experiment_ids": [experiment["experiment_id"]]})["runs"]
    assert [one["info"]["status"] for one in tracked] == ["FINISHED"]
    assert tracked[0]["info"]["artifact_uri"].startswith("mlflow-artifacts:/")

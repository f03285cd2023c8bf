"""Clusters by a word: what is asked of Kubernetes and of SLURM, by their own schemas and on a real SLURM."""

import asyncio
import copy
import os
import subprocess
import sys
import time
from contextlib import nullcontext
from importlib import resources
from pathlib import Path

import dask
import httpx
import pytest
import yaml
from distributed import LocalCluster, Scheduler, rpc

from gristmill.tasks.engine.clusters import (
    CLUSTERS,
    NO_TLS,
    ClusterSettings,
    Tls,
    check,
    dask_cluster,
    read_template,
)
from gristmill.tasks.engine.executors import deferred
from gristmill.tasks.engine.extras import MissingExtraError
from gristmill.tasks.engine.slurm.cluster import SlurmPlace
from gristmill.tasks.engine.slurm.meeting import meetings
from tests import slurm_server
from tests.services import write_certificate

DOCKER = Path(__file__).resolve().parents[3] / "docker"
# The oldest release of Kubernetes that the docs name, and the newest one of which kubernetes-validate has the schemas.
KUBERNETES = ("1.30", "1.37")


def documents(name: str) -> list[dict]:
    return list(yaml.safe_load_all((DOCKER / "kubernetes" / name).read_text()))


def test_a_runs_cluster_has_a_name_and_an_owner_of_its_own():
    template = read_template(str(DOCKER / "kubernetes" / "dask-cluster.yaml"))
    before = copy.deepcopy(template)
    owned = dask_cluster(template, 7, {"POD_NAME": "run-x", "POD_UID": "1-2"})
    other = dask_cluster(template, 7, {})
    assert template == before
    names = [made["metadata"]["name"] for made in (owned, other)]
    assert len(set(names)) == 2 and all(name.startswith("gristmill-") and len(name) < 50 for name in names)
    for made, name in zip((owned, other), names, strict=True):
        assert made["spec"]["scheduler"]["service"]["selector"]["dask.org/cluster-name"] == name
        assert made["spec"]["worker"]["replicas"] == 7
    pod = {"apiVersion": "v1", "kind": "Pod", "name": "run-x", "uid": "1-2"}
    assert owned["metadata"]["ownerReferences"] == [pod]
    assert "ownerReferences" not in other["metadata"]


@pytest.mark.parametrize(
    "kind,workers,template,message",
    [
        ("slurm", 0, "#!/bin/sh", "needs a number of workers: set GRISTMILL_WORKERS"),
        ("slurm", 2, None, "needs the job script of its workers: set GRISTMILL_CLUSTER"),
        ("slurm", 2, "#!/bin/sh", "needs a folder on a disk that all nodes share: set GRISTMILL_SLURM_FOLDER"),
        ("kubernetes", 2, None, "needs the YAML file of its cluster: set GRISTMILL_CLUSTER"),
        ("kubernetes", 2, "- queue", "is not a mapping"),
        ("kubernetes", 2, "queue: [", "is not valid YAML"),
        ("kubernetes", 2, "kind: Pod", "of the kind Pod; give a DaskCluster"),
        ("kubernetes", 2, "kind: DaskCluster", "needs metadata.name"),
    ],
)
def test_a_cluster_that_cannot_be_is_an_error_that_names_its_remedy(
    kind, workers, template, message, tmp_path, monkeypatch
):
    monkeypatch.setattr("gristmill.tasks.engine.extras.missing", lambda names: [])
    path = tmp_path / "cluster"
    if template is not None:
        path.write_text(template)
    with pytest.raises(ValueError, match=message):
        check(kind, workers, "", str(path) if template is not None else "")


def test_a_package_that_lacks_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "dask_kubernetes", None)
    with (
        pytest.raises(MissingExtraError, match=r"pip install 'gristmill\[kubernetes\]'"),
        deferred("kubernetes", 2, template="a"),
    ):
        pass


def test_the_template_of_earlier_releases_is_named(tmp_path):
    (tmp_path / "cluster.yaml").write_text("queue: a")
    with pytest.raises(ValueError, match="is a YAML file, but executor `slurm` submits a job script"):
        check("slurm", 2, "", str(tmp_path / "cluster.yaml"), slurm=SlurmPlace(str(tmp_path)))


def test_a_machine_without_slurm_is_named_before_any_job(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "workers.sbatch").write_text("#!/bin/sh")
    script, place = str(tmp_path / "workers.sbatch"), SlurmPlace(str(tmp_path))
    with (
        pytest.raises(ValueError, match="needs `sbatch` on the PATH"),
        deferred("slurm", 2, template=script, home=str(tmp_path), slurm=place),
    ):
        pass


def test_an_executor_that_was_released_is_started_by_the_next_jobs():
    with deferred("threads", 2) as running:
        assert sorted(running.map(len, ["a", "bc"])) == [(0, 1), (1, 2)]
        first = running.messages
        running.release()
        running.release()
        assert sorted(running.map(len, ["abc"])) == [(0, 3)]
        assert running.messages is not first


@pytest.mark.parametrize("release", KUBERNETES)
@pytest.mark.parametrize("name", sorted(path.name for path in (DOCKER / "kubernetes").iterdir()))
def test_manifests_hold_by_the_schemas_of_kubernetes(name, release):
    """Unknown fields are refused. Pods of a DaskCluster are looked at as the pods that they become."""
    validate = pytest.importorskip("kubernetes_validate").validate
    for document in documents(name):
        if document["kind"] != "DaskCluster":
            validate(document, release, strict=True)
            continue
        for part in ("scheduler", "worker"):
            metadata = {"name": part}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": document["spec"][part]["spec"]}
            validate(pod, release, strict=True)
        spec = document["spec"]["scheduler"]["service"]
        validate({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec}, release, strict=True)
    with pytest.raises(Exception, match="(?i)additional properties|unexpected"):
        validate({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spce": {}}, release, strict=True)


def test_the_port_of_the_scheduler_says_that_it_lives_and_no_more():
    """By the settings of its pod, Dask's own scheduler. Beside it one with Dask's settings, which answers more."""
    (container,) = documents("dask-cluster.yaml")[0]["spec"]["scheduler"]["spec"]["containers"]
    assert "--no-dashboard" in container["args"]
    routes = "distributed.scheduler.http.routes"
    given = dask.config.collect_env({each["name"]: each["value"] for each in container["env"]})
    pages = ("/health", "/info/main/workers.html", "/json/identity.json", "/metrics", "/api/v1/check_idle")

    async def answers(settings: dict) -> list[int]:
        with dask.config.set(settings):
            async with (
                Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0") as scheduler,
                httpx.AsyncClient(base_url=f"http://127.0.0.1:{scheduler.http_server.port}") as client,
            ):
                return [(await client.get(page)).status_code for page in pages]

    assert asyncio.run(answers({})) == [200, 200, 200, 200, 404]
    # the last is what the operator asks
    assert asyncio.run(answers({routes: dask.config.get(routes, config=given)})) == [200, 404, 404, 404, 200]


def test_the_pods_of_a_run_show_the_certificate_that_the_run_shows():
    """What ships: the Secret that is mounted is the one of all three, and the files that are named are in it."""
    cluster = dask_cluster(documents("dask-cluster.yaml")[0], 2, {})
    (job,) = (document for document in documents("run.yaml") if document["kind"] == "Job")
    pods = [cluster["spec"]["scheduler"]["spec"], cluster["spec"]["worker"]["spec"], job["spec"]["template"]["spec"]]
    for pod in pods:
        (container,), volumes = pod["containers"], {volume["name"]: volume for volume in pod["volumes"]}
        (mount,) = (each for each in container["volumeMounts"] if each["name"] == "tls")
        assert volumes["tls"]["secret"]["secretName"] == "gristmill-dask-tls" and mount["readOnly"]
        words = [*container.get("args", ()), *(str(each.get("value")) for each in container.get("env", ()))]
        named = [word.rpartition("=")[2] for word in words if mount["mountPath"] in word]
        assert sorted(named) == [f"{mount['mountPath']}/tls.{end}" for end in ("crt", "crt", "key")]
    (worker,) = cluster["spec"]["worker"]["spec"]["containers"]
    name = cluster["metadata"]["name"]
    assert {"name": "DASK_SCHEDULER_ADDRESS", "value": f"tls://{name}-scheduler:8786"} in worker["env"]


@pytest.mark.parametrize("part", ["scheduler", "worker", "run"])
def test_a_part_of_a_cluster_that_would_talk_without_a_key_is_an_error(part, tmp_path, monkeypatch):
    monkeypatch.setattr("gristmill.tasks.engine.extras.missing", lambda names: [])
    template = documents("dask-cluster.yaml")[0]
    path, tls = tmp_path / "cluster.yaml", Tls(*write_certificate(tmp_path).values())
    path.write_text(yaml.safe_dump(template))
    check("kubernetes", 2, "", str(path), tls)
    if part == "run":
        tls = NO_TLS
    else:
        (container,) = template["spec"][part]["spec"]["containers"]
        container["args"] = [word for word in container["args"] if "tls" not in word]
        path.write_text(yaml.safe_dump(template))
    with pytest.raises(ValueError, match=f"the {part} of GRISTMILL_CLUSTER would accept connections without TLS"):
        check("kubernetes", 2, "", str(path), tls)


@pytest.mark.parametrize("protected", [True, False])
def test_the_client_of_the_operator_reaches_its_scheduler(protected, tmp_path, monkeypatch, caplog):
    """What KubeCluster does as it starts (2026.3), beside a real scheduler: wait for it, then talk to it. Kubernetes
    itself is left out."""
    kubecluster = pytest.importorskip("dask_kubernetes.operator.kubecluster.kubecluster")
    tls = Tls(*write_certificate(tmp_path).values()) if protected else NO_TLS
    made = {"protocol": "tls", "security": tls.security()} if protected else {}
    found = []

    async def start(port: int) -> None:
        address = f"tcp://127.0.0.1:{port}"  # as the module has it of all schedulers
        await kubecluster.wait_for_scheduler_comm(address)
        async with kubecluster.rpc(address) as scheduler:
            found.append((await scheduler.identity())["type"])

    with LocalCluster(0, host="127.0.0.1", dashboard_address="127.0.0.1:0", **made) as cluster:
        port = int(cluster.scheduler_address.rpartition(":")[2])

        class Started(nullcontext):
            def __init__(self, **_: object) -> None:
                asyncio.run(start(port))
                super().__init__()

        monkeypatch.setattr(kubecluster, "KubeCluster", Started)
        template = str(DOCKER / "kubernetes" / "dask-cluster.yaml")
        with CLUSTERS["kubernetes"](ClusterSettings(2, template=template, tls=tls)):
            assert found == ["Scheduler"]
    assert kubecluster.rpc is rpc
    assert ("require no certificate" in caplog.text) is not protected


def test_the_network_policy_is_of_the_runs_pods_and_of_a_clusters():
    """Kubernetes has no word about a selector that fits no pod: the labels are those of the job and of the operator."""
    (policy,) = documents("network-policy.yaml")
    (job,) = (document for document in documents("run.yaml") if document["kind"] == "Job")
    among, operator = policy["spec"]["ingress"]
    cluster, run = (each["podSelector"] for each in among["from"])
    assert run["matchLabels"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
    assert cluster == policy["spec"]["podSelector"]
    service = documents("dask-cluster.yaml")[0]["spec"]["scheduler"]["service"]
    assert cluster["matchExpressions"] == [{"key": "dask.org/cluster-name", "operator": "Exists"}]
    assert "dask.org/cluster-name" in service["selector"]
    assert [each["port"] for each in operator["ports"]] == [each["port"] for each in service["ports"]]


def test_the_dask_cluster_holds_by_the_schema_of_the_operator():
    pytest.importorskip("dask_kubernetes")
    validator = pytest.importorskip("jsonschema").validate
    folder = resources.files("dask_kubernetes.operator.customresources")
    defined = yaml.safe_load(folder.joinpath("templates.yaml").read_text())["definitions"]

    def own(schema):
        """The schema with its own references filled in; those of Kubernetes are looked at by the test above."""
        if isinstance(schema, list):
            return [own(each) for each in schema]
        if not isinstance(schema, dict):
            return schema
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return own(defined[name]) if name in defined else {}
        closed = {"additionalProperties": False} if "properties" in schema else {}
        return closed | {key: own(value) for key, value in schema.items()}

    made = dask_cluster(documents("dask-cluster.yaml")[0], 3, {})
    spec = own(defined["dask.k8s.api.v1.DaskCluster"])["properties"]["spec"]
    validator(made["spec"], spec)
    with pytest.raises(Exception, match="idle_timeout"):
        validator(made["spec"] | {"idle_timeout": 3}, spec)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    if lacking := slurm_server.missing():
        pytest.skip(f"this machine lacks {lacking}")
    with slurm_server.serve(tmp_path_factory.mktemp("slurm")) as environment:
        yield environment


@pytest.mark.slow
def test_jobs_run_on_a_real_slurm_and_nothing_is_left_of_them(slurm, tmp_path, monkeypatch):
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(DOCKER.parent))

    def queued() -> list[str]:
        command = ["squeue", "--noheader", "--array", "--states=PENDING,RUNNING", "--format=%T"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    script, place = str(slurm_server.worker_script(tmp_path)), SlurmPlace(str(tmp_path / "slurm"), "lo")
    with deferred("slurm", 2, template=script, home=str(tmp_path), slurm=place) as running:
        assert queued() == []
        assert sorted(running.map(os.path.basename, ["/a/b", "/c/d"])) == [(0, "b"), (1, "d")]
        assert len(queued()) == 2
        running.release()
        while queued():  # the timeout of the test ends it
            time.sleep(0.5)
    [meeting] = meetings(place.folder)
    assert meeting.is_ended() and not list(meeting.folder.glob("tls-*"))
    assert not (meeting.folder / "scheduler.json").exists()
    assert {state.state for state in meeting.tasks()} <= {"ended"}, "tasks end by themselves"


@pytest.mark.slow
def test_the_script_of_a_training_is_one_that_slurm_takes(slurm):
    """Without what this node has not: a second node and GPUs."""
    script = DOCKER / "slurm" / "training.sbatch"
    environment = os.environ | slurm
    asked = ["--test-only", "--nodes=1", "--gpus-per-node=0", "--cpus-per-task=1"]
    taken = subprocess.run(
        ["sbatch", *asked, str(script), "recipe.yaml"], env=environment, capture_output=True, text=True
    )
    assert taken.returncode == 0 and "to start at" in taken.stderr, taken.stderr

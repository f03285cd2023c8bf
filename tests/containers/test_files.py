"""What the files of docker/ promise, by their text: no engine is needed."""

import re
import shutil
import subprocess
import tomllib
from itertools import chain
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
PUBLIC = {"prefect", "mlflow"}  # the only ones with a port
SECRET = re.compile("PASSWORD|SECRET|TOKEN|KEY|AUTH")


def compose(name: str) -> dict:
    return yaml.safe_load((DOCKER / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def services() -> dict[str, dict]:
    return compose("compose.yaml")["services"]


def test_only_loopback_is_published(services):
    assert {name for name, service in services.items() if "ports" in service} == PUBLIC
    for name in PUBLIC:
        assert all(port.startswith("127.0.0.1:") for port in services[name]["ports"])
    assert all("network_mode" not in service for service in services.values())


def test_databases_store_and_scheduler_are_on_a_network_that_no_port_leaves(services):
    assert compose("compose.yaml")["networks"]["inner"] == {"internal": True}
    for name in ("postgres", "redis", "s3", "dask-scheduler"):
        assert services[name]["networks"] == ["inner"]


def test_every_service_has_a_health_check_and_a_limit(services):
    for name, service in services.items():
        assert "mem_limit" in service, name
        assert "healthcheck" in service or service["restart"] == "no", name
        for needed, given in service.get("depends_on", {}).items():
            once = services[needed]["restart"] == "no"
            assert given["condition"] == ("service_completed_successfully" if once else "service_healthy")


def test_no_secret_is_in_a_compose_file(services, tmp_path):
    """Neither as a value, nor as a variable that a log of the compose tool would show."""
    for service in (*services.values(), *compose("compose.debian.yaml")["services"].values()):
        for name in service.get("environment", {}):
            assert not SECRET.search(name) or name.endswith("_FILE"), name
    shutil.copy(DOCKER / "secrets.sh", tmp_path)
    made = [made_by(tmp_path) for _ in range(2)]
    assert made[0] == made[1] and made[0].keys() >= mounted(services)


def made_by(folder: Path) -> dict[str, bytes]:
    """The secrets that the script in a folder makes, by their names; a second run leaves them as they are."""
    subprocess.run(["sh", str(folder / "secrets.sh")], check=True)
    assert (folder / "secrets").stat().st_mode & 0o77 == 0
    return {path.name: path.read_bytes() for path in (folder / "secrets").iterdir()}


def mounted(services: dict[str, dict]) -> set[str]:
    volumes = [volume for service in services.values() for volume in service.get("volumes", [])]
    return {volume.split(":")[0].removeprefix("./secrets/") for volume in volumes if volume.startswith("./secrets/")}


def test_secrets_that_cannot_be_made_are_said(tmp_path):
    """Docker makes a folder for a file that it is to show a container and that is not there."""
    shutil.copy(DOCKER / "secrets.sh", tmp_path)
    (tmp_path / "secrets/dask-key").mkdir(parents=True)
    done = subprocess.run(["sh", str(tmp_path / "secrets.sh")], capture_output=True, text=True)
    assert done.returncode == 1 and "remove them" in done.stderr and len(done.stderr) < 500
    (tmp_path / "secrets/dask-key").rmdir()
    subprocess.run(["sh", str(tmp_path / "secrets.sh")], check=True)
    made = {name: (tmp_path / f"secrets/dask-{name}").read_text() for name in ("key", "cert")}
    subprocess.run(["sh", str(tmp_path / "secrets.sh")], check=True)
    assert made == {name: (tmp_path / f"secrets/dask-{name}").read_text() for name in ("key", "cert")}


def test_every_public_image_is_named_by_release(services):
    images = [service["image"] for service in services.values()]
    public = [image for image in images if not image.startswith("gristmill")]
    assert len(public) == 3
    for image in public:
        assert re.fullmatch(r"[\w./-]+:[\w.-]*\d[\w.-]*", image), image


def test_the_override_knows_the_same_services(services):
    assert set(compose("compose.debian.yaml")["services"]) <= set(services)


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_every_requirement_is_locked_for_each_python(python, system):
    """By one release, which the project permits, in constraints.txt, which `make lock` writes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"Programming Language :: Python :: {python}" in project["classifiers"]
    environment = {"python_version": python, "python_full_version": f"{python}.1", "sys_platform": system}
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pinned: dict[str, list[str]] = {}
    for requirement in map(Requirement, lines):
        assert requirement.url is None and [each.operator for each in requirement.specifier] == ["=="]
        if requirement.marker is None or requirement.marker.evaluate(environment):
            [specifier] = requirement.specifier
            pinned.setdefault(canonicalize_name(requirement.name), []).append(specifier.version)
    every = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    for requirement in map(Requirement, every):
        if requirement.name == "gristmill" or (requirement.marker and not requirement.marker.evaluate(environment)):
            continue
        [release] = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(release), (requirement, release)


def test_the_image_installs_extras_that_there_are():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = re.search(r"ARG EXTRAS=(\S+)", (DOCKER / "Dockerfile").read_text())[1].split(",")
    assert {*names} == {*project["optional-dependencies"]} - {*("all", "bench", "blocks", "dev", "docs", "fp8")}


def test_the_image_runs_as_a_user_of_its_own():
    lines = (DOCKER / "Dockerfile").read_text(encoding="utf-8").splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER")]
    assert users and users[-1] not in ("root", "0")
    assert all(service.get("user") != "root" for service in compose("compose.debian.yaml")["services"].values())

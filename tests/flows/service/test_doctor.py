"""doctor: planted faults are found, each with its remedy; what is sound is no error."""

import importlib.util
import io
import json
import py_compile
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import dask
import distributed
import psutil
import pytest
from distributed import LocalCluster

import gristmill
from gristmill.flows.cli import main
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.run import doctor
from gristmill.flows.run.doctor import examine
from gristmill.tasks.engine.clusters import Tls
from tests.services import write_certificate


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    """No server but those that a test names."""
    monkeypatch.setattr("gristmill.flows.run.server.named", lambda: None)
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


def lines(tmp_path: Path, **settings) -> dict[str, list]:
    given = {"home": str(tmp_path / "home"), "executor": "serial"} | settings
    found: dict[str, list] = {}
    for line in examine(MachineSettings(**given)):
        assert (line.state == "ok") == (line.remedy == ""), line
        found.setdefault(line.subject, []).append(line)
    return found


def one(found: dict[str, list], subject: str):
    (line,) = found[subject]
    return line


def test_a_sound_machine_has_no_error_and_its_home_is_left_empty(tmp_path):
    found = lines(tmp_path)
    assert not [line for some in found.values() for line in some if line.state == "error"]
    assert {"versions", "memory", "home", "kernels", "prefect", "mlflow", "executor", "ports"} <= found.keys()
    assert list((tmp_path / "home").iterdir()) == []


def test_modules_that_each_process_compiles_are_a_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "bytecode"))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert "bytecode" not in lines(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    warning = one(lines(tmp_path), "bytecode")
    assert warning.state == "warning"
    compile_command = warning.remedy.split("`")[1].split()
    assert compile_command[:4] == [sys.executable, "-m", "compileall", "-q"]
    for module in (gristmill, distributed):
        assert Path(module.__file__).is_relative_to(compile_command[4]) or Path(module.__file__).is_relative_to(
            compile_command[-1]
        )
        path = Path(importlib.util.cache_from_source(module.__file__))
        path.parent.mkdir(parents=True)
        py_compile.compile(module.__file__, str(path))
    assert "bytecode" not in lines(tmp_path)


def test_a_home_that_is_a_file_is_an_error(tmp_path):
    (tmp_path / "home").write_text("")
    assert {line.state for line in lines(tmp_path)["home"]} == {"error"}


def test_a_damaged_database_of_mlflow_is_an_error(tmp_path):
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / "mlflow.db").write_bytes(b"no database" * 1000)
    line = one(lines(tmp_path), "mlflow")
    assert line.state == "error" and line.remedy.startswith("move it away")


def test_servers_that_do_not_answer_are_errors(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "_SECONDS", 1)
    nowhere = "127.0.0.1:1"  # where nobody listens
    found = lines(
        tmp_path,
        mlflow_uri=f"http://{nowhere}",
        executor="dask",
        dask_address=f"tcp://{nowhere}",
        redis=f"redis://{nowhere}",
    )
    for subject, setting in (("mlflow", "MLFLOW_URI"), ("dask", "DASK_ADDRESS"), ("redis", "REDIS")):
        line = one(found, subject)
        assert line.state == "error" and setting in line.remedy


def test_a_refused_login_and_an_open_server_are_told(tmp_path, crawl_server, monkeypatch):
    path = crawl_server.folder / "api/2.0/mlflow/experiments/search?max_results=1"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    assert one(lines(tmp_path, mlflow_uri=crawl_server.url), "mlflow").state == "ok"
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "miller")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "grist")
    answered, openly = lines(tmp_path, mlflow_uri=crawl_server.url)["mlflow"]
    assert answered.state == "ok" and openly.state == "warning" and "without a login" in openly.found
    crawl_server.authorization = "Basic other"
    refused = one(lines(tmp_path, mlflow_uri=crawl_server.url), "mlflow")
    assert refused.state == "error" and "401" in refused.found and "MLFLOW_TRACKING_PASSWORD" in refused.remedy


def test_a_bucket_that_is_not_there_is_an_error_and_one_that_is_has_conditional_writes(tmp_path, s3):
    there = one(lines(tmp_path, home="s3://crawl/home", local=str(tmp_path)), "home")
    assert there.state == "ok" and "conditional" in there.found
    gone = one(lines(tmp_path, home="s3://gone/home", local=str(tmp_path)), "home")
    assert gone.state == "error" and "bucket" in gone.remedy


def test_clocks_that_differ_are_told(tmp_path, crawl_server, monkeypatch):
    path = crawl_server.folder / "api/2.0/mlflow/experiments/search?max_results=1"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    for skew, state in ((0.0, "ok"), (30.0, "warning"), (-1000.0, "error")):
        monkeypatch.setattr(doctor, "time", SimpleNamespace(time=lambda skew=skew: time.time() + skew))
        assert one(lines(tmp_path, mlflow_uri=crawl_server.url), "clock").state == state


def test_a_limit_of_memory_below_the_machines_is_what_counts(tmp_path, monkeypatch):
    """As a container has one: Dask reads the files of its cgroup."""
    total = psutil.virtual_memory().total
    assert one(lines(tmp_path, memory=total // 4), "memory").state == "ok"
    read = io.open

    def cgroup(path, *mode, **given):
        return io.StringIO(f"{total // 4}\n") if path == "/sys/fs/cgroup/memory.max" else read(path, *mode, **given)

    monkeypatch.setattr("builtins.open", cgroup)
    found = one(lines(tmp_path, memory=total // 4), "memory")
    assert found.state == "warning" and found.remedy.startswith("lower GRISTMILL_MEMORY")
    assert f"{total // 4 / 1e9:.1f} GB allowed of {total / 1e9:.1f}" in found.found
    assert one(lines(tmp_path, memory=total // 16), "memory").state == "ok"


def test_a_port_that_is_taken_is_an_error(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        assert one(lines(tmp_path, training_nodes=2, training_rendezvous=at), "ports").state == "error"
    assert one(lines(tmp_path, training_nodes=2, training_rendezvous=at), "ports").state == "ok"


def test_the_command_ends_with_1_where_there_is_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GRISTMILL_EXECUTOR", "serial")
    for uri, code in (("", 0), ("http://127.0.0.1:1", 1)):
        monkeypatch.setenv("GRISTMILL_MLFLOW_URI", uri)
        monkeypatch.setattr(sys, "argv", ["gristmill", "home", "doctor", "--json"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert (ended.value.code or 0) == code
        states = {line["state"] for line in json.loads(capsys.readouterr().out)}
        assert ("error" in states) == bool(code)


def test_workers_that_may_hang_under_dasks_profiler_are_told(tmp_path, monkeypatch):
    loopback = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(n_workers=1, processes=False, protocol="tcp", **loopback) as cluster:
        for python, profiled, told in (((3, 11, 8), True, 1), ((3, 11, 8), False, 0), ((3, 11, 9), True, 0)):
            monkeypatch.setattr(doctor, "sys", SimpleNamespace(**vars(sys) | {"version_info": python}))
            with dask.config.set({"distributed.worker.profile.enabled": profiled}):
                found = lines(tmp_path, executor="dask", dask_address=cluster.scheduler_address)["dask"]
            assert [line.state for line in found] == ["warning"] * (1 + told) + ["ok"]
            assert "requires no certificate" in found[0].found


def test_a_cluster_that_asks_for_a_key_is_no_warning(tmp_path):
    given = write_certificate(tmp_path)
    settings = {f"dask_tls_{name.lower()}": path for name, path in given.items()}
    loopback = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "protocol": "tls"}
    security = Tls(given["CA"], given["CERT"], given["KEY"]).security()
    with (
        dask.config.set({"distributed.worker.profile.enabled": False}),
        LocalCluster(n_workers=1, processes=False, security=security, **loopback) as cluster,
    ):
        at = cluster.scheduler_address
        found = lines(tmp_path, executor="dask", dask_address=at, **settings)["dask"]
        assert [line.state for line in found] == ["ok"]
        (found,) = lines(tmp_path, executor="dask", dask_address=at)["dask"]
        assert found.state == "error"
        (found,) = lines(tmp_path, executor="dask", dask_address=at.replace("tls", "tcp"), **settings)["dask"]
        assert found.state == "error" and "use tls://host:port" in found.found

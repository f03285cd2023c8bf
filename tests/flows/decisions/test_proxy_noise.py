"""Recorded noise of a proxy: fitted to stages of a home with planted components, read by its own proxy alone."""

from functools import partial

import numpy as np
import orjson
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.experiments.decisions.noise import fit_noise, read_noise, write_noise
from gristmill.flows.recipe.proxy import PROXIES, load_proxy
from gristmill.flows.stages.proxy import run_record
from gristmill.flows.stats.crossed import Components
from gristmill.flows.stats.runs import RunRequest
from gristmill.storage import layout, parquet
from gristmill.tasks.evaluation.documents import evaluation_file
from gristmill.training.config import TRAINING_VERSION
from tests.decisions import evaluation, of_hosts
from tests.simulated_runs import Simulator

PROXY = load_proxy("small")
TOKENS = 51_200
PLANTED = Components(pair=0.02, sample=0.006, run=0.01, learning_rate=0.02, document=0.1, run_document=0.03, level=3.0)


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> str:
    """Runs of three mixtures and 8 pairs, of the first also those of a second sample; single runs of other pairs and
    samples, of another proxy and of other tokens, beside them."""
    folder = tmp_path_factory.mktemp("home")
    judged = evaluation(80, 2)
    runs = Simulator(PLANTED, judged, PROXY.learning_rates, TOKENS, seed=3)
    wanted = [RunRequest(f"m{m}", p, r, TOKENS) for m in range(3) for p in range(8) for r in PROXY.learning_rates]
    wanted += [RunRequest("m0", p, r, TOKENS, 1) for p in range(8) for r in PROXY.learning_rates]
    wanted += [RunRequest("m0", 70 + salt, r, TOKENS, salt) for salt in range(4) for r in PROXY.learning_rates]
    wanted += [RunRequest("m1", 3, PROXY.learning_rates[0], TOKENS, 2)]
    other = PROXY.model_copy(update={"model": PROXY.model.model_copy(update={"dim": 32})})
    made = [(PROXY, request) for request in wanted]
    made += [(other, RunRequest("m0", p, PROXY.learning_rates[0], TOKENS)) for p in range(30, 40)]
    made += [(PROXY, RunRequest("m0", p, PROXY.learning_rates[0], 2 * TOKENS)) for p in range(40, 50)]
    for number, (proxy, request) in enumerate(made):
        record = run_record(proxy, request.tokens, request.learning_rate, request.pair, request.salt)
        stage = layout.stage_folder(str(folder), "proxy", f"{number:016x}")
        [bits] = runs([request])
        table = {"set": np.array(judged.names)[judged.set_of], "document": np.arange(len(bits)), "bits": bits}
        parquet.write_table(f"{stage}/document_losses.parquet", pa.table(table | {"bytes": judged.size}))
        manifest = {"version": TRAINING_VERSION, "record": record.model_dump(mode="json")}
        manifest |= {"inputs": {"mixture": request.arm}, "read": {}}
        layout.write_manifest(stage, manifest | {"result": {"tokens": request.tokens}}, [])
    return str(folder)


def test_hosts_are_those_of_the_evaluation_documents_in_the_home(home, tmp_path):
    judged = of_hosts(80, 10, sets=2)
    planted = PLANTED.model_copy(update={"host": 0.2, "document": 0.05})
    runs = Simulator(planted, judged, PROXY.learning_rates, TOKENS, seed=4)
    names = np.array(judged.names)[judged.set_of]
    wanted = [RunRequest(f"m{m}", p, r, TOKENS) for m in range(6) for p in range(4) for r in PROXY.learning_rates]
    for number, request in enumerate(wanted):
        record = run_record(PROXY, TOKENS, request.learning_rate, request.pair, 0)
        stage = layout.stage_folder(str(tmp_path), "proxy", f"{number:016x}")
        table = {"set": names, "document": np.arange(len(names)), "bits": runs([request])[0], "bytes": judged.size}
        parquet.write_table(f"{stage}/document_losses.parquet", pa.table(table))
        given = record.model_dump(mode="json")
        if number % 2:
            del given["processes"]  # as a version wrote it whose runs were of one process
        manifest = {"version": TRAINING_VERSION, "record": given, "inputs": {"mixture": request.arm}, "read": {}}
        layout.write_manifest(stage, manifest | {"result": {"tokens": TOKENS}}, [])
    alone = fit_noise(str(tmp_path), PROXY, "simulated runs")
    assert alone.components.host == 0 and alone.components.document > 0.1
    old = evaluation_file(layout.stage_folder(str(tmp_path), "evaluation_documents", "d" * 16))
    parquet.write_table(old, pa.table({"set": names, "bytes": judged.size}))  # of a version that knew no hosts
    layout.write_manifest(
        old.rsplit("/", 1)[0], {"version": 1, "record": {}, "inputs": {}, "read": {}, "result": {}}, []
    )
    stage = layout.stage_folder(str(tmp_path), "evaluation_documents", "e" * 16)
    hosts = [f"{one}.invalid" for one in judged.cluster_of]
    parquet.write_table(evaluation_file(stage), pa.table({"set": names, "bytes": judged.size, "host": hosts}))
    layout.write_manifest(stage, {"version": 1, "record": {}, "inputs": {}, "read": {}, "result": {}}, [])
    found = fit_noise(str(tmp_path), PROXY, "simulated runs")
    assert found.components.host == pytest.approx(0.2, rel=0.3)
    assert found.components.document == pytest.approx(0.05, rel=0.3)


def test_planted_components_are_found_in_a_home_and_survive_the_file(home, tmp_path):
    found = fit_noise(home, PROXY, "simulated runs")
    assert (found.tokens, found.documents, found.mixtures, found.degrees) == (TOKENS, 160, 3, 14 + 28)
    truth = PLANTED.model_copy(update={"run": np.hypot(PLANTED.run, PLANTED.sample)})
    for name, tolerance in {"run": 0.25, "run_document": 0.05, "document": 0.1, "level": 0.01, "pair": 0.5}.items():
        assert getattr(found.components, name) == pytest.approx(getattr(truth, name), rel=tolerance), name
    own = tmp_path / "own.yaml"
    own.write_text((PROXIES / "small.yaml").read_text())
    assert read_noise(str(own), PROXY) is None and read_noise(PROXY, PROXY) is None
    write_noise(found, own.with_suffix(".json"))
    assert read_noise(str(own), PROXY) == found


def test_a_file_of_another_proxy_or_with_another_content_is_refused(home, tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text((PROXIES / "small.yaml").read_text().replace("dim: 48", "dim: 96"))
    write_noise(fit_noise(home, PROXY, "simulated runs"), own.with_suffix(".json"))
    with pytest.raises(ValueError, match=r"own.json was fitted to runs of a different proxy than .*own.yaml; fit"):
        read_noise(own, load_proxy(own))
    own.with_suffix(".json").write_bytes(orjson.dumps({"tokens": 0}))
    with pytest.raises(ValueError, match="own.json is not a valid noise of a proxy: .*; fit it again"):
        read_noise(own, load_proxy(own))
    with pytest.raises(ValueError, match="has no finished run of the proxy small: train an A/A bank first"):
        fit_noise(str(tmp_path), PROXY, "nothing")


@pytest.mark.parametrize("path", sorted(PROXIES.glob("*.json")))
def test_what_ships_is_of_the_proxy_that_ships(path):
    proxy = load_proxy(path.stem)
    found = read_noise(path.stem, proxy)
    assert found is not None and found.tokens <= proxy.tokens and found.provenance


def test_the_proxies_without_noise_are_those_that_no_machine_has_trained():
    unknown = {path.stem for path in PROXIES.glob("*.yaml") if read_noise(path.stem, load_proxy(path.stem)) is None}
    assert unknown == {"3m", "15m", "60m"}


def test_the_command_writes_what_is_read_beside_the_proxy(home, tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text((PROXIES / "small.yaml").read_text())
    invoke = partial(CliRunner().invoke, app, env={"GRISTMILL_HOME": home})
    done = invoke(["decide", "noise", str(own), "--runs", "simulated runs"])
    assert done.exit_code == 0, done.output
    assert read_noise(str(own), load_proxy(own)).provenance == "simulated runs"
    assert "160 documents, 42 degrees" in done.stdout

"""What a result needs is refused by commands before anything is made, and plans count runs without making any."""

import json
import re

import pytest
from typer.testing import CliRunner

from gristmill.flows.cli.app import app
from gristmill.flows.experiments.mixture_plan import planned_mixture
from gristmill.flows.experiments.options import AgreementOptions, MixOptions, ScaleOptions
from gristmill.flows.experiments.scaling.grid import checked_agreement, planned_grid
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load

SIZES = ["--sizes", "80k,150k", "--tokens", "100k,100k"]
GRID = ["--sizes", "80k,150k,220k", "--tokens", "100k,200k,300k", "--judge", "web"]
ONE_RATE = {
    "name": "one-rate",
    "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": 64},
    "tokens": 60_000,
    "learning_rates": [0.01],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "2000")
    for name in ("web", "books"):
        (tmp_path / f"{name}.jsonl").write_text('{"text": "One."}\n')
    sources = ", ".join(f"{{name: {name}, jsonl: ['{tmp_path}/{name}.jsonl']}}" for name in ("web", "books"))
    steps = "[{step: extract}, {step: content_dedup}]"
    (tmp_path / "r.yaml").write_text(f"name: r\nsources: [{sources}]\nsteps: {steps}\n")
    (tmp_path / "one-rate.json").write_text(json.dumps(ONE_RATE))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["mix", "--method", "doremi", "--judge", "web"], "--judge or --clean: only for regmix, because doremi has no"),
        (["mix", "--judge", "web", "--proxy", "one-rate.json"], "learning_rates"),
        (["mix", "--judge", "web", "--runs", "3"], "3 runs are too few for 2 sources; use 4 or more"),
        (["mix", "--judge", "web", "--tokens", "100"], "needs at least two: use more tokens"),
        (["mix", "--judge", "web", "--device", "h100"], "--device needs --plan"),
        (["agreement", "--raw", "--judge", "web", *SIZES], "2 recipes (r, raw) have no ranks to compare: give 3 or"),
        (["scale", "--judge", "web", *SIZES], "2 runs are too few for a law with 5 parameters; train 7 or more"),
        (["scale", *GRID, "--forecast", "150k:200k"], "is a run of the grid"),
        (["ablate", "--raw", "--judge", "web", "--pairs", "4,2"], "must be ascending"),
    ],
)
def test_what_cannot_have_a_result_is_refused_before_anything_is_made(words, reason, folder, monkeypatch):
    from gristmill.flows.run import server

    monkeypatch.setattr(server, "start", lambda settings: pytest.fail("Prefect's server was started"))
    shown = CliRunner().invoke(app, ["decide", words[0], "r.yaml", *words[1:]])
    assert shown.exit_code != 0
    said = " ".join(f"{shown.output} {shown.exception}".split())
    assert reason in said or re.search(reason, said), said
    assert not (folder / "home" / "stages").exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--block", "foo"], "--block foo is unknown; choose from llama, nanochat"),
        (["--optimizer", "sgd"], "--optimizer sgd is unknown; choose from adamw, muon"),
        (["--rule", "standard", "--rule", "mu"], "--rule mu is unknown; choose from standard, mup, completep"),
        (["--widths", "8,64"], "--widths 8 is below 16, the width of a head; use larger widths"),
    ],
)
def test_a_sweep_of_what_there_is_not_is_refused_in_one_line(words, reason):
    shown = CliRunner().invoke(app, ["decide", "transfer", *words])
    assert shown.exit_code != 0 and f"{shown.exception}" == reason


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        # 20 mixtures, then the best one, by tokens and uniform, with three seeds each
        (["mix", "--judge", "web", "--runs", "20", "--seeds", "3"], "runs: 69, 3 of each mixture"),
        (["mix", "--method", "doremi", "--runs", "5"], "runs: 5 of the reference and 5 of DoReMi"),
        (["agreement", "--raw", "--without", "content_dedup", "--judge", "web", *SIZES], "2 cells, 12 runs"),
    ],
)
def test_plans_have_runs_tokens_and_time(words, runs, folder):
    plan = ["--plan", "--device", "h100", "--price", "2"]
    shown = CliRunner().invoke(app, ["decide", words[0], "r.yaml", *words[1:], *plan])
    assert shown.exit_code == 0, shown.output
    said = " ".join(shown.output.split())
    assert runs in said and "runs that are already in the home are reused" in said
    assert re.search(r"h100 at \d+% of the [\d,.]+ TFLOP/s", said) and "tokens" in said
    assert not (folder / "home" / "stages").exists()


def test_the_plan_of_a_mixture_has_the_time_of_its_runs(folder):
    """Written out: a run takes its start and its operations at the device's rate, eight at once."""
    from gristmill.flows.experiments.decisions.device import Device
    from gristmill.flows.run.progress import duration

    plan = planned_mixture(MachineSettings(), load("r.yaml"), MixOptions(judge=["web"], tokens=200_000))
    assert (plan.runs, plan.groups) == (2 * (32 + 3), 2)
    model = plan.proxy.model
    matrices = model.layers * (
        2 * model.dim * model.dim + 2 * model.dim * model.head_dim * model.kv_head_count + 3 * model.dim * model.ffn_dim
    )
    operations = 6 * (matrices + plan.proxy.vocab_size * model.dim) + 12 * model.layers * model.dim * model.seq_len
    seconds = 3 + operations * 200_000 / 1e10
    said = " ".join(plan.lines(lambda proxy: Device("a device", 1e10, 8, start=3.0)))
    assert f"8 at once, {duration(seconds * -(-70 // 8))} (a device)" in said


def test_the_flows_check_the_same(folder):
    recipe = load("r.yaml")
    with pytest.raises(ValueError, match="ascending order of size"):
        checked_agreement(MachineSettings(), recipe, AgreementOptions(sizes=[150, 80], tokens=[1, 1], raw=True))
    grid = planned_grid(ScaleOptions(sizes=[80_000, 150_000, 220_000], tokens=[100_000, 200_000, 300_000]))
    assert len(grid.cells) == 9 and grid.problem == ""


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"executor": "slurm"}, "executor `slurm` needs a number of workers: set GRISTMILL_WORKERS"),
        ({"executor": "slurm", "workers": "2"}, "needs the job script of its workers: set GRISTMILL_CLUSTER"),
        ({"executor": "dask"}, "needs the scheduler's address: set GRISTMILL_DASK_ADDRESS"),
        (
            {"executor": "kubernetes", "workers": "2", "cluster": "none.yaml"},
            "GRISTMILL_CLUSTER none.yaml: No such file",
        ),
    ],
)
@pytest.mark.parametrize("command", ["check", "corpus"])
def test_an_executor_that_cannot_start_is_refused_before_anything_is_made(
    command, settings, reason, folder, monkeypatch
):
    from gristmill.flows.run import server

    monkeypatch.setattr(server, "start", lambda settings: pytest.fail("Prefect's server was started"))
    monkeypatch.setattr("gristmill.tasks.engine.extras.missing", lambda names: [])
    for name, value in settings.items():
        monkeypatch.setenv(f"GRISTMILL_{name.upper()}", value)
    shown = CliRunner().invoke(app, [command, "r.yaml"])
    assert shown.exit_code == 1
    assert reason in (shown.output if command == "check" else str(shown.exception))
    assert not (folder / "home").exists()

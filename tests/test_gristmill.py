"""The module `gristmill`: it gives the flows, writes nothing, and takes no other name."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(program: str, folder: Path, *path: Path) -> subprocess.CompletedProcess[str]:
    """A program in a folder, with folders on the path of its modules."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "GRISTMILL_"))}
    environment = ours | {"PYTHONPATH": os.pathsep.join(map(str, path)), "HOME": str(folder.parent)}
    command = [sys.executable, "-P", "-c", program]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.mark.parametrize(
    "statement", ["import gristmill", "import gristmill.flows", "from gristmill.flows import recipe"]
)
def test_an_import_writes_nothing_and_loads_no_prefect(folder, statement):
    done = run(f"import sys; {statement}; print([n for n in ('prefect', 'numba') if n in sys.modules])", folder, ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(folder.iterdir()) == []
    assert done.stdout == "[]\n"


@pytest.mark.extended
def test_it_gives_the_flows_and_what_goes_with_them(folder):
    program = (
        "import gristmill; from gristmill import corpus, pipeline; import gristmill.flows.pipeline\n"
        "import prefect; print(isinstance(pipeline, prefect.Flow), gristmill.flows.pipeline.pipeline is pipeline)\n"
        "print(pipeline.name, corpus.name)\n"
        "print(gristmill.load('demo').name, gristmill.Report is gristmill.Run, gristmill.__version__)\n"
        "print(*(getattr(gristmill, name).__name__ for name in gristmill.__all__ if name != '__version__'))\n"
        "print(sorted(gristmill.__all__) == dir(gristmill), hasattr(gristmill, 'nothing'))"
    )
    done = run(program, folder, ROOT)
    assert done.returncode == 0, done.stderr
    every = (
        "AgreementReport DecisionReport Difference Memorized MixtureResult PhraseIndex PhraseMatches Rows Run "
        "ScalingReport StudyReport Trace TrainingPlan WordIndex WordMatches ablate agreement corpus diff find "
        "find_words load memorized mix open open_index open_words pipeline plan pretrain remake scale study tokens "
        "trace"
    )
    release = f"demo True {version('gristmill')}"
    assert done.stdout.splitlines() == ["True True", "pipeline corpus", release, every, "True False"]


@pytest.mark.extended
@pytest.mark.parametrize("kind", ["package", "module"])
def test_packages_of_its_users_have_the_names_of_its_rooms(folder, tmp_path, kind):
    for name in ("flows", "samples", "storage", "tasks", "training"):
        other = tmp_path / "other" / (f"{name}/__init__.py" if kind == "package" else f"{name}.py")
        other.parent.mkdir(parents=True, exist_ok=True)
        other.write_text("raise SystemExit('must not be imported')\n")
    done = run(
        "import gristmill; gristmill.corpus; print(gristmill.load('demo').name)", folder, tmp_path / "other", ROOT
    )
    assert (done.returncode, done.stdout) == (0, "demo\n"), done.stderr
    assert list(folder.iterdir()) == []


USER = """
import gristmill

run = gristmill.open("recipe.yaml", home="home")
reveal_type(run)
reveal_type(run.documents.reader)
reveal_type(run.summary)
reveal_type(gristmill.load("demo").steps)
run.documents.to_pandas(7)
run.documentz
"""


@pytest.mark.slow
def test_its_types_are_known_to_whoever_installs_it(folder):
    (folder / "user.py").write_text(USER)
    done = subprocess.run([sys.executable, "-m", "mypy", "user.py"], cwd=folder, capture_output=True, text=True)
    found = {line.split(": ", 1)[0]: line.split(": ", 1)[1] for line in done.stdout.splitlines()[:-1]}
    told = [found[f"user.py:{number}"] for number in range(5, 11)]
    assert told[0] == 'note: Revealed type is "gristmill.flows.reports.run.Run"'
    assert "columns: typing.Sequence[str] | None" in told[1] and '"list[str]"' in told[2].replace("builtins.", "")
    assert "Any" not in told[3]
    assert 'incompatible type "int"' in told[4] and '"Run" has no attribute "documentz"' in told[5]
    assert set(found) == {f"user.py:{number}" for number in range(5, 11)}, "and nothing is said of our own modules"


@pytest.mark.extended
def test_it_is_the_command_line_as_a_module(folder):
    program = "import runpy, sys; sys.argv[1:] = {}; runpy.run_module('gristmill', run_name='__main__', alter_sys=True)"
    done = run(program.format("['--version']"), folder, ROOT)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("gristmill 0.")
    refused = run(program.format("['check', 'nothing.yaml']"), folder, ROOT)
    assert refused.returncode == 1 and "Traceback" not in refused.stderr

"""The command line waits only for what it needs. Which modules a command imports is held here, not its time."""

import subprocess
import sys

import pytest

from gristmill.storage import files, layout

WORK = {
    "prefect",
    "mlflow",
    "torch",
    "distributed",
    "numba",
    "scipy",
    "sklearn",
    "gristmill.tasks.models.compiled",
    "pandas",
    "aiohttp",
}
HELP = WORK | {"fsspec", "pydantic", "yaml", "numpy", "pyarrow"}
RUN = """
import sys
sys.argv = ["gristmill", *sys.argv[1:]]
from gristmill.flows.cli import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
OURS = {
    "gristmill",
    "gristmill.flows",
    "gristmill.flows.cli",
    "gristmill.flows.cli.app",
    "gristmill.flows.machine",
    "gristmill.flows.machine.limits",
    "gristmill.storage",
    "gristmill.storage.printable",
}


def run(*arguments: str, home: str = "nowhere", cwd: str | None = None) -> tuple[str, set[str]]:
    """What a command prints, and the packages that it imported."""
    command = [sys.executable, "-c", RUN, *arguments]
    environment = {"PATH": "/usr/bin:/bin", "GRISTMILL_HOME": home, "PYTHONPATH": ":".join(sys.path[1:])}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=cwd)
    return done.stdout, set(done.stderr.splitlines()[-1].split())


@pytest.fixture
def home(tmp_path):
    """A home with a finished stage and an unfinished one."""
    count = {"step": "c4", "rows_in": 5, "rows_out": 4, "characters_in": 9, "characters_out": 8, "drops": {"short": 1}}
    record = {"rows_in": 5, "rows_out": 4, "steps": [count]}
    folder = layout.stage_folder(str(tmp_path), "rules", "k0")
    layout.write_manifest(
        folder,
        {"stage": "rules", "key": "k0", "version": 1, "record": {}, "inputs": {}, "read": {}, "result": {}},
        [layout.Part("decide", 0, record, {})],
    )
    files.write_json(str(tmp_path / "stages/tokens-k1/done/encode-00000.json"), {})
    return str(tmp_path)


def test_help_and_version_import_neither_work_nor_settings():
    shown, packages = run("--help")
    assert "decide" in shown and "explain" in shown
    assert packages & HELP == set()
    shown, packages = run("--version")
    assert shown.startswith("gristmill 0.")
    assert packages & HELP == set()


def test_help_imports_no_module_of_a_command():
    program = (
        "import sys\nfrom gristmill.flows.cli import app\n"
        "try:\n    app(['--help'])\n"
        "except SystemExit:\n    print(*(name for name in sys.modules if name.partition('.')[0] == 'gristmill'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {*done.stdout.splitlines()[-1].split()} == OURS


def test_status_reads_manifests_without_the_libraries_of_the_work(home):
    shown, packages = run("home", "status", home=home)
    assert "rules-k0" in shown and "tokens-k1" in shown
    assert packages & WORK == set()


@pytest.mark.extended
def test_check_reads_a_recipe_and_looks_for_its_files_without_them(home):
    shown, packages = run("check", "refinedweb", "--json", home=home)
    assert '"findings": []' in shown
    assert packages & WORK == set()


@pytest.mark.extended
def test_a_corpus_needs_no_library_of_training():
    program = (
        "import sys, gristmill, gristmill.flows.cli.exporting, gristmill.flows.cli.results\n"
        "import gristmill.flows.recipe.first_recipe\n"
        "gristmill.corpus\n"
        "print([name for name in ('torch', 'mlflow', 'pandas', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.extended
def test_a_finished_run_is_opened_without_prefect_or_libraries_of_training(tmp_path):
    program = (
        "import sys, gristmill\n"
        "source = {'name': 'web', 'jsonl': ['pages.jsonl']}\n"
        "recipe = {'name': 'none', 'sources': [source], 'steps': [{'step': 'extract'}, {'step': 'gopher_quality'}]}\n"
        "try:\n    gristmill.open(recipe, home='home')\n"
        "except LookupError as error:\n    print('is not finished' in str(error))\n"
        "import gristmill.flows.reports.run.rows\n"
        "print([name for name in ('prefect', 'distributed', 'torch', 'mlflow', 'pandas') if name in sys.modules])"
    )
    (tmp_path / "pages.jsonl").write_text('{"text": "A page."}')
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.splitlines() == ["True", "[]"], done.stderr


@pytest.mark.extended
def test_the_corpus_page_starts_without_libraries_that_its_first_view_does_not_need():
    program = (
        "import sys, gristmill.flows.explore.browse.server\n"
        "print([n for n in ('prefect', 'torch', 'mlflow', 'sklearn', 'scipy.stats', 'matplotlib') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

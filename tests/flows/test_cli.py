"""The command line and the package wait only for what they need."""

import subprocess
import sys

HEAVY = ("prefect", "mlflow", "torch", "distributed", "numba", "fasttext", "pandas")


def told(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_help_loads_nothing_heavy():
    program = (
        "import sys; from typer.testing import CliRunner; from flows.cli import app; "
        "shown = CliRunner().invoke(app, ['--help']).stdout; "
        f"print('whatif' in shown, 'thresholds' in shown, [name for name in {HEAVY} if name in sys.modules])"
    )
    assert told(program).strip() == "True True []"


def test_the_package_gives_the_flow_and_not_the_module_of_its_name():
    program = (
        "import flows.pipeline; from flows import corpus, pipeline; import flows; "
        "print(type(pipeline).__name__, pipeline.name, corpus.name, flows.pipeline is pipeline)"
    )
    assert told(program).strip() == "Flow pipeline corpus True"

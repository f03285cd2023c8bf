"""The command line waits only for what it needs."""

import subprocess
import sys

HEAVY = ("prefect", "mlflow", "torch", "distributed", "numba", "fasttext", "pandas", "fsspec", "pyarrow", "pydantic")


def test_help_loads_nothing_heavy():
    program = (
        "import sys; from typer.testing import CliRunner; from flows.cli import app; "
        "shown = CliRunner().invoke(app, ['--help']).stdout; "
        f"print('whatif' in shown, 'dedup-report' in shown, [name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True True []"

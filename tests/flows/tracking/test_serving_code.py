"""The code that is logged with a model: it loads where no other Gristmill is imported."""

import os
import subprocess
import sys

import pytest

from gristmill.flows.run.model_run import _serving_code


@pytest.mark.extended
def test_a_logged_model_brings_all_code_that_it_imports(tmp_path):
    code = _serving_code(tmp_path)
    listing = "[each.__file__ for name, each in sys.modules.items() if name.split('.')[0] == 'gristmill']"
    script = f"import gristmill.training.hub.mlflow_model, sys; print(*{listing}, sep='\\n')"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    files = done.stdout.split()
    assert len(files) > 5 and all(file.startswith(str(code)) for file in files)

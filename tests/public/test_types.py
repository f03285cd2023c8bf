"""What type checkers see of the public interface. Mypy reads `user_program.py` with `make lint`."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gristmill
from tests.public.signatures import signatures

ROOT = Path(__file__).parents[2]
WRONG = """import gristmill

gristmill.plan("recipe.yaml", devices="8")
gristmill.plan("recipe.yaml", device_count=8)
gristmill.scale("recipe.yaml")
gristmill.mix("recipe.yaml", method="other")
gristmill.corpus(7)
"""


@pytest.mark.extended
def test_the_stub_of_functions_is_that_of_the_code():
    stub = Path(gristmill.__file__).with_name("functions.pyi").read_text(encoding="utf-8")
    assert stub == signatures() + "\n", "run python -m tests.public.signatures > gristmill/functions.pyi"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pyright") is None, reason="pyright is not installed: pip install pyright[nodejs]")
def test_pyright_finds_only_what_is_wrong(tmp_path):
    shutil.copy(ROOT / "tests/public/user_program.py", tmp_path)
    (tmp_path / "wrong.py").write_text(WRONG)
    settings = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": [str(ROOT)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = ["pyright", "--outputjson", "--project", str(tmp_path), "--pythonpath", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True)
    problems = json.loads(done.stdout)["generalDiagnostics"]
    places = [(Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in problems]
    assert places == [("wrong.py", line) for line in range(3, 8)], done.stdout

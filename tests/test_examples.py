"""The programs in `examples/` run as their first lines say, and print what they are there to show."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Runs

EXAMPLES = Path(__file__).parents[1] / "examples"

pytestmark = pytest.mark.slow


def printed(name: str, folder: Path) -> str:
    given = Runs(folder).environment("unused")
    del given["GRISTMILL_HOME"]  # the home is in the folder that the program is given
    command = [sys.executable, str(EXAMPLES / name), str(folder / "made")]
    done = subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in folder.iterdir()] == ["made"]
    return done.stdout


def test_a_first_corpus(tmp_path):
    shown = printed("first_corpus.py", tmp_path)
    kept, extracted = map(int, re.match(r"<Run of first in \S+: (\d+) of ([\d,]+) ", shown.replace(",", "")).groups())
    assert 200 < kept < extracted / 4, "most docstrings are short, or those of a parent"
    [passed] = re.findall(r"^gopher_quality +(\d+) +(\d+) +\{", shown, re.MULTILINE)
    assert int(passed[1]) < int(passed[0]) and "<NA>" in shown, "fewer pass where more words are asked for"
    assert "near_duplicate" in shown and re.search(r"python:\S+ +0\.[789]\d* +True", shown)


def test_a_first_decision(tmp_path):
    """So few runs may not be able to tell, and then it says so; bytecode among the tokens costs a model of English."""
    shown = printed("first_decision.py", tmp_path)
    assert len(re.findall(r"^(?:cannot tell whether .*|.* is (?:better|worse) than .*)$", shown, re.MULTILINE)) == 2
    rows = re.findall(
        r"^ *(gopher_quality.min_words=10|raw) +.*? +(-?[\d.]+) +(-?[\d.]+) +(-?[\d.]+)$", shown, re.MULTILINE
    )
    effects = {name: tuple(map(float, of)) for name, *of in rows}
    assert len(effects) == 2 and all(low < effect < high for effect, low, high in effects.values())
    assert effects["raw"][0] < 0

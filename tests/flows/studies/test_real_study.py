"""Studies of a small corpus from the flow to the page, with real runs."""

import subprocess
import sys
from random import Random

import pytest
import yaml

from gristmill.storage import checked_json
from tests.flows.decisions.test_decision_tasks import PROXY, write
from tests.planted.text import prose

SCRIPT = """
import sys, gristmill
for question in sys.argv[3:]:
    report = gristmill.study(sys.argv[1], question, proxy=sys.argv[2], judge=["web"], pairs=4)
    print(report.sentence, report.page, sep="\\n")
"""


@pytest.mark.slow
def test_clipping_vocabularies_and_resuming(runs, tmp_path):
    draw = Random(5)
    source = write(tmp_path / "web.jsonl", [{"text": " ".join(prose(draw, "en", 120))} for _ in range(150)])
    recipe = {"name": "web", "sources": [{"name": "web", "jsonl": [source]}], "steps": [{"step": "extract"}]}
    proxy = tmp_path / "proxy.yaml"
    proxy.write_text(yaml.safe_dump(PROXY))
    home = runs.home("studied")
    command = [sys.executable, "-c", SCRIPT, str(runs.write(recipe)), str(proxy), "clip", "vocabulary", "resume"]
    with open(runs.folder / "studied.log", "a") as log:
        done = subprocess.run(
            command, env=runs.environment("studied", executor="threads"), cwd=runs.folder, stdout=log, stderr=log
        )
    assert done.returncode == 0, runs.log("studied")
    found = {one["question"]: one for one in (checked_json.read(str(path)) for path in home.glob("studies/*.json"))}
    assert {*found} == {"clip", "vocabulary", "resume"} and len(list(home.glob("studies/*.html"))) == 3
    clip, vocabulary, resume = (found[name]["rows"] for name in ("clip", "vocabulary", "resume"))
    assert [row["label"] for row in clip] == ["norm 1", "norm 0.1", "no clipping"]
    assert all(row["failure"] == "" and len(row["losses"]) == 4 for row in clip)
    assert all(row["low"] < row["effect"] < row["high"] for row in clip[1:] if row["outcome"] != "identical")
    sizes = [row["parameters"] for row in vocabulary]
    assert sizes == sorted(sizes, key=lambda size: [1, 0, 2, 3][sizes.index(size)]) and len(set(sizes)) == 4
    assert [row["outcome"] for row in resume[:2]] == ["", "the same bits"]
    assert resume[0]["loss"] == resume[1]["loss"]
    # another number of processes sums in another order
    assert resume[2]["outcome"].startswith("weights differ by ") and abs(resume[2]["loss"] - resume[0]["loss"]) < 0.01

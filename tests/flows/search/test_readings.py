"""The steps that read a document, against the batches of all steps."""

import json
from collections import defaultdict
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.explore.search.batches import batch_of
from gristmill.flows.explore.search.readings import readings
from gristmill.flows.machine.settings import MachineSettings
from gristmill.storage import parquet


@pytest.mark.extended
def test_documents_are_read_at_the_steps_whose_batches_have_them(undisturbed, recipe, tmp_path, monkeypatch):
    target = tmp_path / "small.yaml"
    target.write_text(json.dumps(recipe))
    home = undisturbed.home("undisturbed")
    settings = MachineSettings(home=str(home))
    steps: dict[str, dict[int, int]] = defaultdict(dict)
    for step in range(1, recipe["training"]["steps"] + 1):
        for document in batch_of(str(target), step, settings).documents:
            steps[document.row["id"]][step] = document.tokens
    lengths = {}
    for path in sorted(Path(home).glob("stages/tokens-*/train-*.parquet")):
        index = parquet.read_table(str(path), ["id", "length"]).to_pylist()
        lengths |= {row["id"]: row["length"] for row in index}
    assert set(steps) < set(lengths)  # some are not read in so few steps
    for document, tokens in lengths.items():
        [found] = readings(document, settings)
        assert found.steps == steps.get(document, {})
        assert (found.tokens, found.recipes, found.trained) == (tokens, ("small",), recipe["training"]["steps"])
        assert found.left_out == 0 and found.unread <= recipe["model"]["seq_len"]
    monkeypatch.setenv("GRISTMILL_HOME", str(home))
    document = max(steps, key=lambda each: len(steps[each]))
    given = ["explain", "lineage", document, "--trainings"]
    said = CliRunner().invoke(app, [*given, "--json"], catch_exceptions=False)
    assert {int(step): count for step, count in json.loads(said.stdout)[0]["steps"].items()} == steps[document]
    assert f"in {len(steps[document])} of 12 steps" in CliRunner().invoke(app, given).stdout
    with pytest.raises(LookupError, match="none of the 1 finished trainings in .* begins with nothing"):
        [*readings("nothing", settings)]

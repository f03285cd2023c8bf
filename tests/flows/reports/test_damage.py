"""What could not be read of source files, as the summary of a run says it."""

import gzip
import json

from gristmill.flows.curation import curate
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.funnel import damage_lines
from tests.corpora import context


def test_the_rest_of_a_file_that_is_lost_is_named_and_not_counted_as_one_document_only(tmp_path):
    rows = "".join(json.dumps({"text": f"The mill has ground sack {n * 7919 % 1000}."}) + "\n" for n in range(500))
    whole = gzip.compress(rows.encode())
    (tmp_path / "half.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "array.jsonl").write_text(json.dumps([json.loads(row) for row in rows.splitlines()]))
    (tmp_path / "sound.jsonl").write_text(rows)
    recipe = {
        "name": "damage",
        "sources": [{"name": "web", "jsonl": [f"{tmp_path}/*.jsonl*"]}],
        "steps": [{"step": "extract", "engine": "plain"}],
    }
    *_, last = curate(context(str(tmp_path / "home")), load(recipe))
    [line] = damage_lines(last.left)
    assert line.startswith("unreadable: 2 records, each counted as one document, even if the rest of a file is lost")
    assert "array.jsonl (line 1, at byte 0: the file is one JSON array" in line
    assert "half.jsonl.gz (line " in line and "and what follows: the file ends inside this gzip member" in line
    (tmp_path / "array.jsonl").unlink()
    (tmp_path / "half.jsonl.gz").unlink()
    *_, last = curate(context(str(tmp_path / "home")), load(recipe))
    assert [*damage_lines(last.left)] == []

"""The step `substring_dedup` in a flow: its stages, which of them another policy needs anew, what is shown of it."""

import pytest

from gristmill.flows.reports.dropped import edits
from gristmill.flows.stages.dedup.exact_duplicates import substring_dedup
from gristmill.storage.home import verify
from gristmill.tasks.dedup.substrings import SubstringDedup
from tests.corpora import Texts, context, ledger, read

QUOTED = " ".join(f"q{i}" for i in range(12))


@pytest.fixture
def texts() -> Texts:
    shards = [
        [{"id": "b", "text": f"One.\n{QUOTED}\nTwo."}, {"id": "d", "text": f"{QUOTED} four"}],
        [{"id": "a", "text": f"Three of {QUOTED} and more of it"}, {"id": "c", "text": "Nothing of it"}],
    ]
    return Texts(shards)


def test_cut_and_drop_share_the_spans(texts, tmp_path):
    home = str(tmp_path)
    at, corpus = context(home), texts.corpus(home)
    step = SubstringDedup(min_length=10, min_characters=5)
    cut = substring_dedup(at, texts.recipe, corpus, step)
    assert cut.documents is cut.kept and [built.name for built in cut.stages[1:]] == ["substring_spans", step.step]
    assert not (tmp_path / "stages" / f"substring_spans-{cut.stages[1].key}" / "texts").exists()
    left = {row["id"]: row["text"] for row in read(cut.kept, [0, 1]).to_pylist()}
    assert left == {"b": "One.\nTwo.", "a": f"Three of {QUOTED} and more of it", "c": "Nothing of it"}
    [count] = cut.kept.step_counts
    assert count["drops"] == {"min_characters": 1} and count["edits"] == {"repeated_span": 2}
    assert count["characters_out"] == sum(map(len, left.values()))
    assert {one.row["removed"].strip() for one in edits(home, step.step, 9)} == {QUOTED}
    assert ledger(cut.kept, [0, 1])["id"].to_pylist() == ["d"]
    assert substring_dedup(at, texts.recipe, corpus, step).kept.reused

    given = SubstringDedup(min_length=10, policy="drop", max_share=0.8)
    shrunk = substring_dedup(at, texts.recipe, corpus, given)
    spans, kept = shrunk.stages[1:]
    assert spans.reused and kept is shrunk.kept and shrunk.documents is corpus.documents
    assert read(kept, [0, 1])["id"].to_pylist() == ["b", "a", "c"]
    assert ledger(kept, [0, 1])["rule"].to_pylist() == ["max_share"]
    assert not verify(kept.folder).damages
    other = substring_dedup(at, texts.recipe, corpus, SubstringDedup(min_length=10, keep="none"))
    assert not other.stages[1].reused
    # of b, nine characters are left
    assert {row["id"] for row in read(other.kept, [0, 1]).to_pylist()} == {"a", "c"}

"""Steps over documents: signals see the text that the edits before them left, whatever the slices are."""

import re
from functools import singledispatch
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pytest

from gristmill.storage import layout, ledger, parquet
from gristmill.storage.schema import DOCUMENTS, EDITS
from gristmill.tasks.documents import decisions
from gristmill.tasks.documents.edits import Edits
from gristmill.tasks.documents.measure import Batch, EditCounts, measured
from gristmill.tasks.documents.step import Bound, DocumentStep, EditStep, Signal
from gristmill.tasks.pii.step import Pii
from gristmill.tasks.rules.c4 import C4
from tests.corpora import check_balance


class Sevens(DocumentStep):
    step: Literal["sevens"] = "sevens"
    signals: ClassVar = (Signal("sevens", "int64", "sevens", "this test", description="Of a test."),)


@singledispatch
def measure(step, documents):
    return {step.step: pa.array([text.count("7") for text in documents["text"].to_pylist()], pa.int64())}


class NoSevens(EditStep):
    """Puts `what` in place of sevens in a row."""

    step: Literal["no_sevens"] = "no_sevens"
    what: str = ""
    signal_fields: ClassVar = ("what",)
    signals: ClassVar = (Signal("no_sevens_characters", "int64", "code points", "this test", description="Of a test."),)

    def decisions(self):
        return [self.not_empty()]


def edit(step, documents):
    spans = [
        (d, len(text[: found.start()].encode()), len(text[: found.end()].encode()))
        for d, text in enumerate(documents["text"].to_pylist())
        for found in re.finditer("7+", text)
    ]
    document, start, stop = np.array(spans, np.int64).reshape(-1, 3).T
    rule = np.zeros(len(spans), np.int32)
    return Edits(document, start, stop, rule, ("seven",), pa.array([step.what] * len(spans), pa.string())), {}


class Seen(Sevens):
    step: Literal["seen"] = "seen"
    signals: ClassVar = (Signal("seen", "int64", "sevens", "this test", description="Of a test."),)


TEXTS = ["7 dwarfs", "é77é\n7\nend", "", "none", "777", "7"] * 5


def table(texts):
    return pa.table(
        {
            "id": [f"{i:02d}" for i in range(len(texts))],
            "text": pa.array(texts, pa.large_string()),
            "characters": pa.array(map(len, texts), pa.int64()),
        }
    )


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_steps_behind_an_edit_see_what_it_left(monkeypatch, size):
    monkeypatch.setattr("gristmill.tasks.documents.measure.SLICE", size)
    found = measured(table(TEXTS), [Sevens(), NoSevens(what="VII"), Seen()])
    left = [re.sub("7+", "VII", text) for text in TEXTS]
    assert found.table["text"].to_pylist() == left
    assert (
        found.table["characters"].to_pylist() == found.table["no_sevens_characters"].to_pylist() == list(map(len, left))
    )
    assert found.table["sevens"].to_pylist() == [text.count("7") for text in TEXTS]
    assert set(found.table["seen"].to_pylist()) == {0}
    cuts = [(f"{d:02d}", *match.span(), match[0]) for d, text in enumerate(TEXTS) for match in re.finditer("7+", text)]
    rows = found.edits.to_pylist()
    assert [(row["id"], row["start"], row["stop"], row["removed"]) for row in rows] == cuts
    assert {(row["step"], row["rule"], row["replacement"]) for row in rows} == {("no_sevens", "seven", "VII")}
    assert found.edits.schema == EDITS


def test_the_lines_of_an_edit_are_those_of_the_text_that_it_met():
    rows = measured(table(["a\nb7\n77\nc"]), [NoSevens()]).edits.to_pylist()
    assert [(row["first_line"], row["last_line"]) for row in rows] == [(1, 1), (2, 2)]


def test_no_documents_at_all():
    found = measured(table([]), [Sevens(), NoSevens(), Seen()])
    assert found.table.num_rows == found.edits.num_rows == 0
    assert found.table.column_names == ["id", "text", "characters", "sevens", "no_sevens_characters", "seen"]


def documents(texts):
    columns = {field.name: pa.nulls(len(texts), field.type) for field in DOCUMENTS}
    given = table(texts)
    columns |= {name: given[name] for name in given.column_names} | {"source": ["s"] * len(texts)}
    return pa.table(columns).cast(DOCUMENTS)


def test_a_pass_behind_a_corpus_step_writes_the_documents_again_and_its_edits_balance(tmp_path):
    before, kept, folder = (str(tmp_path / name) for name in ("before.parquet", "kept.parquet", "edited"))
    given = documents(TEXTS)
    parquet.write_table(before, given)
    chosen = given.filter(pa.array([i % 3 != 1 for i in range(len(given))]))
    parquet.write_table(kept, chosen.select(["id", "characters"]))
    record = decisions.edit_shard(folder, 0, before, kept, (), "web", (Sevens(), NoSevens()))
    made = parquet.read_table(layout.part(folder, 0))
    assert made["id"].to_pylist() == chosen["id"].to_pylist()
    assert made["text"].to_pylist() == [text.replace("7", "") for text in chosen["text"].to_pylist()]
    runs = sum(len(re.findall("7+", text)) for text in chosen["text"].to_pylist())
    (step,) = record["steps"]
    assert step["edits"] == {"seven": runs}
    assert step["characters_in"] - step["characters_out"] == sum(t.count("7") for t in chosen["text"].to_pylist())
    check_balance(folder, [record])

    cuts = parquet.read_table(layout.edits_part(folder, 0))
    parquet.write_table(layout.edits_part(folder, 0), cuts.slice(1))
    with pytest.raises(ledger.LedgerError, match="edits"):
        check_balance(folder, [record])


class NeedsSevens(Sevens):
    step: Literal["needs"] = "needs"
    signals: ClassVar = (Signal("twice", "int64", "sevens", "this test", description="Of a test."),)

    @property
    def reads(self):
        return ("sevens",)


@measure.register
def _(step: NeedsSevens, documents):
    return {"twice": pa.array([2 * n for n in documents["sevens"].to_pylist()], pa.int64())}


def test_a_step_reads_signals_that_were_measured_before_by_id_not_by_position(tmp_path):
    before, kept, first, folder = (str(tmp_path / name) for name in ("before", "kept", "first", "second"))
    given = documents(TEXTS)
    parquet.write_table(before, given)
    parquet.write_table(kept, given.select(["id", "characters"]).slice(3))
    signals = measured(given.select(["id", "text"]), [Sevens()]).table.select(["id", "sevens"])
    parquet.write_table(first, signals.take(list(reversed(range(len(signals))))))
    decisions.measure_shard(folder, 0, before, kept, (first,), "web", (NeedsSevens(),))
    made = parquet.read_table(layout.part(folder, 0))
    assert made["id"].to_pylist() == given["id"].to_pylist()[3:]
    assert made["twice"].to_pylist() == [2 * text.count("7") for text in TEXTS[3:]]


def test_a_step_considers_a_signal_where_a_step_before_it_measured_it(tmp_path):
    before, kept, first = (str(tmp_path / name) for name in ("before", "kept", "first"))
    given = documents(["Nummer 030 23125123", "Nummer 030 23125123"])
    parquet.write_table(before, given)
    parquet.write_table(kept, given.select(["id", "characters"]))
    parquet.write_table(first, pa.table({"id": given["id"], "language": ["de", "en"]}))
    for measured_before, phones in (((first,), [1, 0]), ((), [0, 0])):
        folder = str(tmp_path / f"edited{len(measured_before)}")
        decisions.edit_shard(folder, 0, before, kept, measured_before, "web", (Pii(),))
        made = parquet.read_table(layout.part(folder, 0))
        assert made["pii_phones"].to_pylist() == phones and "language" not in made.column_names


def test_a_text_that_an_edit_empties_is_dropped_for_it():
    assert NoSevens().decisions() == [Bound("empty_text", "no_sevens_characters", low=1)]


def test_counts_follow_each_other():
    class Fewer(NoSevens):
        step: Literal["fewer"] = "fewer"
        signals: ClassVar = (Signal("fewer_characters", "int64", "code points", "this test", description="Of a test."),)

    steps = [NoSevens(what="VII"), Fewer()]
    counts = EditCounts(steps, "web")
    counts.add(measured(table(["7", "77x"]), steps))
    counts.add(measured(table(["x"]), steps))
    first, second = counts.counts(3, 5)
    assert (first["characters_in"], first["characters_out"], first["edits"]) == (5, 8, {"seven": 2})
    assert (second["characters_in"], second["characters_out"], second["edits"]) == (8, 8, {})
    assert Batch(table(["7"]))["text"].to_pylist() == ["7"]


def test_what_a_later_step_masks_is_in_no_row_of_an_earlier_one():
    lines = ["This line of some words stays here.", "write to john.doe@gmail.com", "and to jane.doe@gmail.com now."]
    found = measured(table(["\n".join(lines)]), [C4(min_sentences=None), Pii()])
    steps = found.edits["step"].to_pylist()
    assert steps == ["c4", "pii"] and found.edits["stop"].to_pylist()[0] > len(lines[0])
    assert "doe@" not in str(found.table.to_pylist()) + str(found.edits.to_pylist())
    alone = measured(table(["\n".join(lines)]), [C4(min_sentences=None)])
    assert alone.edits["removed"].to_pylist() == [lines[1] + "\n"]

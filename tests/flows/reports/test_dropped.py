"""What a reader is given of a dropped document: the text that the rule met, and what offended it."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.flows.reports.dropped import dropped, matches
from gristmill.flows.reports.marking import offending, restored
from gristmill.storage import checked_json, files, layout, ledger, parquet
from gristmill.storage.home import Home
from gristmill.storage.schema import DOCUMENTS, EDITS
from gristmill.tasks.documents.measure import measured
from gristmill.tasks.pii.step import Pii
from gristmill.tasks.rules.c4 import C4
from gristmill.tasks.rules.fineweb_quality import FineWebQuality
from gristmill.tasks.rules.gopher_quality import GopherQuality
from gristmill.tasks.rules.gopher_repetition import GopherRepetition


def table(*texts):
    return pa.table({"id": list(map(str, range(len(texts)))), "text": pa.array(texts, pa.large_string())})


LINES = st.sampled_from(
    ["", "one", "Terms of use", "we use javascript here", "\u00e9t\u00e9 [12] finit ici. Oui.", "  x", "a b c d."]
)


@settings(deadline=None)
@given(st.lists(st.lists(LINES, max_size=8).map("\n".join), min_size=1, max_size=4))
def test_the_text_before_an_edit_follows_from_its_rows(texts):
    found = measured(table(*texts), [C4()])
    for before, row in zip(texts, found.table.to_pylist(), strict=True):
        own = found.edits.filter(pa.compute.equal(found.edits["id"], row["id"])).sort_by("start")
        assert restored(row["text"], own) == before


def test_what_was_not_kept_is_shown_as_blocks_of_its_length():
    cut = pa.Table.from_pylist(
        [
            {"id": "0", "step": "pii", "rule": "email", "first_line": 0, "last_line": 0, "start": 3, "stop": 8}
            | {"removed": None, "replacement": "[MAIL]"}
        ],
        schema=EDITS,
    )
    assert restored("to [MAIL], please", cut) == "to \u2588\u2588\u2588\u2588\u2588, please"


def marked(step, rule, text, value, threshold):
    row = {"rule": rule, "value": value, "threshold": threshold}
    return [text[a:b] for a, b in offending(step, row, table(text), text).marks]


def test_marks_are_what_a_rule_counts_or_what_it_misses():
    text = "\u00e9 - plain words 123 %% here"
    assert marked(GopherQuality(), "alpha_words", text, 0.5, 0.8) == ["-", "123 %%"]
    text = "first line\n- b\u00fcllet\n\u2022 dot\nlast"
    assert marked(GopherQuality(), "bullet_lines", text, 0.95, 0.9) == ["- b\u00fcllet\n\u2022 dot"]
    text = "same line\nother\nsame line\nsame line"
    assert marked(GopherRepetition(), "dup_lines", text, 0.5, 0.3) == ["same line\nsame line"]


@pytest.mark.parametrize("rule", ["words", "stop_words"])
def test_of_too_small_a_number_nothing_is_marked(rule):
    text = "Plain words - and 123 %% more."
    found = offending(GopherQuality(), {"rule": rule, "value": 1, "threshold": 2}, table(text), text)
    assert found.marks == () and found.remark.startswith(f"nothing is marked: {rule} requires more ")


def test_lines_that_lack_punctuation_are_marked_until_they_are_most_of_the_page():
    step, line = FineWebQuality(), "A line that ends as it should, and is long.\n"
    row = {"rule": "line_punctuation", "value": 0.05, "threshold": 0.12}
    text = f"{line * 3}\nmenu\n\nhome\n"
    found = offending(step, row, table(text), text)
    assert [text[a:b] for a, b in found.marks] == ["menu\n\nhome"]
    assert found.remark == "line_punctuation counts everything that is not marked, in fraction of lines"
    text = "A line of a menu without an end\n" * 9 + "One ends.\n" + "And more of the menu\n" * 9
    found = offending(step, row, table(text), text)
    assert [text[a:b] for a, b in found.marks] == ["One ends."]
    assert found.remark == "line_punctuation counts what is marked, which is too small a fraction of lines"


def test_a_mean_marks_nothing():
    assert marked(GopherQuality(), "mean_word_length", "xx yy", 2.0, 3.0) == []


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("gopher_quality.stop_words", True),
        ("gopher.stop_words", True),
        ("gopher", True),
        ("stop_words", True),
        ("", True),
        ("gopher.words", False),
        ("goph.stop_words", False),
        ("c4", False),
    ],
)
def test_a_rule_is_named_by_the_beginning_of_its_step(wanted, found):
    assert matches("gopher_quality", "stop_words", wanted) is found


def stage(home, name, settings, inputs, rows, parts, ledgers=()):
    """A finished stage with one shard, as the flow leaves it."""
    key = f"{name}0"
    folder = layout.stage_folder(str(home), name, key)
    for path, table in parts.items():
        parquet.write_table(files.join(folder, path, "part-00000.parquet"), table)
    gone = ledger.from_rows(list(ledgers))
    ledger.write_ledger(folder, 0, gone)
    steps = [ledger.count(name, rows, None, gone, 0)]
    record = {"rows_in": rows, "rows_out": rows - len(ledgers), "steps": steps}
    identity = {"stage": name, "key": key, "version": 1, "record": settings, "inputs": inputs, "read": {}, "result": {}}
    layout.write_manifest(folder, identity, [layout.Part("make", 0, record, {})])
    return key


@pytest.fixture
def home(tmp_path):
    """Documents with their language, then, behind a corpus step, texts edited again and judged by language."""
    steps = [GopherQuality(stop_words_by_language={"de": ("und",)}), Pii()]
    columns = {field.name: pa.nulls(2, field.type) for field in DOCUMENTS}
    columns |= {"id": ["a", "b"], "source": ["s", "s"], "url": ["https://a.example/", "https://b.example/"]}
    texts = ["bread und butter", "bread and butter: write to a.b@gmail.com"]
    columns |= {"text": texts, "characters": list(map(len, texts))}
    documents = pa.table(columns).cast(DOCUMENTS)
    first = documents.append_column("language", pa.array(["de", "en"]))
    key = stage(tmp_path, "documents", {"steps": [{"step": "language"}]}, {}, 2, {"": first})
    found = measured(first, steps)
    settings = {"steps": [step.measuring().model_dump(mode="json") for step in steps]}
    inputs = {"documents": key, "measured 0": key}
    names = [*DOCUMENTS.names, *(field.name for step in steps for field in step.signals)]
    edited = stage(tmp_path, "edited", settings, inputs, 2, {"": found.table.select(names), "edits": found.edits})
    inputs = {"documents": edited, "measured 0": key, "measured 1": edited}
    drops = [
        {"id": one, "step": "gopher_quality", "rule": "stop_words", "value": 3.0, "threshold": 2.0} for one in "ab"
    ]
    stage(tmp_path, "rules", {"decisions": []}, inputs, 2, {}, drops)
    return str(tmp_path)


def test_a_rule_by_language_is_marked_though_the_language_was_found_in_another_stage(home):
    german, english = dropped(home, "dropped", "gopher.stop_words", 9)
    assert german.row["url"] == "https://a.example/"
    assert [german.text[a:b] for a, b in german.marks] == ["und"]
    assert english.text == "bread and butter: write to " + "\u2588" * len("a.b@gmail.com")
    assert english.unmarked == ""


def test_a_stage_of_older_code_is_shown_without_marks(home):
    [edited] = Home(home).stages("edited")
    path = files.join(edited.folder, "manifest.json")
    manifest = layout.manifest(edited.folder)
    manifest["record"]["steps"][0]["gone"] = 1
    checked_json.write(path, manifest)
    first, _ = dropped(home, "rules", "", 9)
    assert first.marks == () and "gone" in first.unmarked and first.text == "bread und butter"


def test_of_a_rule_that_dropped_nothing_the_others_are_named(home):
    with pytest.raises(LookupError, match="gopher_quality.stop_words"):
        list(dropped(home, "dropped", "c4", 1))

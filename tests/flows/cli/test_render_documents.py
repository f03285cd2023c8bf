"""Documents as a reader sees them: offending parts in brackets, long texts around their marks, decisions in a line."""

from gristmill.flows.cli import documents as render
from gristmill.flows.reports.dropped import Dropped, Edit
from gristmill.flows.reports.lineage import Decision, Lineage
from gristmill.flows.reports.marking import first_difference
from gristmill.flows.reports.similar import LookUp, Match, Query
from gristmill.flows.reports.status import KeptDocument, KeptDocuments
from gristmill.tasks.dedup.near.settings import MinHash

GONE = {"step": "minhash", "rule": "near_duplicate", "value": 0.9, "threshold": 0.8, "detail": None}


def test_kept_documents_stand_under_their_stage():
    documents = [KeptDocument({"id": "a", "url": None}, "x" * 20), KeptDocument({"id": "b", "url": "u"}, None)]
    assert list(render.kept(KeptDocuments("home/rules-0", documents), 8)) == [
        "== home/rules-0",
        "id: a\nxxxxxxxx [... 12 more characters]\n",
        "id: b\nurl: u\n",
    ]


def test_offending_parts_are_in_brackets():
    found = Dropped("rules-0", {"id": "x", "value": None}, "good BAD good", ((5, 8),))
    assert render.dropped(found, 600).plain == "== rules-0\nid: x\ngood ⟦BAD⟧ good\n"
    without = Dropped("rules-0", {"id": "x"}, None)
    assert render.dropped(without, 600).plain == "== rules-0\nid: x\n"
    unmarked = Dropped("rules-0", {"id": "x"}, "text", (), "c4 cannot process the text again")
    assert "\nnot marked: c4 cannot process the text again\ntext" in render.dropped(unmarked, 600).plain


def test_long_texts_are_shown_around_their_marks():
    text = "a" * 5000 + "BAD" + "b" * 5000
    shown = render.dropped(Dropped("rules-0", {"id": "x", "value": None}, text, ((5000, 5003),)), 600).plain
    assert "⟦BAD⟧" in shown and "value" not in shown and "[... 4,680 characters]" in shown
    assert len(shown) < 1500


def test_an_edit_names_its_lines_and_what_stands_there_now():
    row = {"id": "x", "step": "pii", "rule": "email", "first_line": 0, "last_line": 0, "removed": None}
    shown = render.edit(Edit("edited-0", row | {"replacement": "[MAIL]"})).plain
    assert shown == "edited-0  x  pii.email, line 1\n⟦(not stored)⟧ → [MAIL]\n"
    row |= {"last_line": 2, "removed": "one\ntwo\nthree\n", "replacement": ""}
    assert render.edit(Edit("edited-0", row)).plain == "edited-0  x  pii.email, lines 1 to 3\n⟦one\ntwo\nthree⟧\n"


def test_a_decision_is_one_line():
    assert render.decision(Decision("rules-0", True, {"id": "x"})) == "rules-0: kept"
    row = GONE | {"representative": "y"}
    line = "near_duplicates-0: dropped by minhash.near_duplicate, value 0.9, threshold 0.8, representative y"
    assert render.decision(Decision("near_duplicates-0", False, row)) == line


def test_a_lineage_has_its_sections_in_order():
    row = {"id": "x", "source": "web", "url": "u", "ip": None, "characters": 9, "text": "some text", "words": 2}
    decisions = (Decision("rules-0", True, {}), Decision("rules-1", False, GONE | {"representative": None}))
    found = Lineage("documents-0", row, None, "web.warc, offset 0 is gone", {"quality-0": {"quality": 0.5}}, decisions)
    assert list(render.lineage(found, 4)) == [
        "== documents-0  x",
        *("source: web", "url: u", "characters: 9"),
        "\n-- decision history",
        "rules-0: kept",
        "rules-1: dropped by minhash.near_duplicate, value 0.9, threshold 0.8",
        "\n-- scores",
        *("documents-0  words: 2", "quality-0  quality: 0.5"),
        "\n-- raw, 0 bytes",
        "web. [... 22 more characters]",
        "\n-- text, 9 characters",
        "some [... 5 more characters]",
    ]
    assert "kept by every stage so far" in list(render.lineage(Lineage("documents-0", row, None), 4))


def test_a_look_up_states_what_was_compared_and_what_became_of_it():
    kept = Decision("near_duplicates-0", True, {"cluster_size": 1200})
    gone = Decision("near_duplicates-0", False, GONE | {"representative": "a"})
    match = Match("b", 0.9, "web", None, (gone,), "a b c")
    found = LookUp("signatures-0", MinHash(bands=16, rows=8), 0.5, Query("a c", "a", 0), (kept,), 3, 1, (match,))
    first, second = (text.plain for text in render.look_up(found))
    assert "the document itself: near_duplicates-0: kept, cluster of 1,200\n" in first
    assert (
        "candidates that share one of 16 bands of 8 rows: 3 (expected: 6.1% of near-duplicates at Jaccard 0.5" in first
    )
    assert second == (
        "0.9000  b  web\nnear_duplicates-0: dropped by minhash.near_duplicate, duplicate of a, Jaccard 0.9000\n"
        "  this   a ⟦⟧ c\n  other  a ⟦b⟧ c\n"
    )


def test_a_decision_without_a_similarity_states_why_the_document_is_gone():
    row = {"step": "minhash", "rule": "near_duplicate", "value": None, "representative": "a"}
    line = "dropped by minhash.near_duplicate, duplicate of a, connected through shared bands"
    assert render.duplicate_decision(Decision("near_duplicates-0", False, row)) == f"near_duplicates-0: {line}"
    row = row | {"rule": "takedown", "representative": None}
    assert render.duplicate_decision(Decision("n-0", False, row)) == "n-0: dropped by minhash.takedown"


def test_a_passage_from_the_middle_of_texts_begins_and_ends_with_dots():
    common = " ".join(f"c{i}" for i in range(100))
    shown = render.difference(first_difference(f"{common} red {common}", f"{common} blue {common}")).plain
    ours, theirs = shown.splitlines()
    assert ours.startswith("  this   ... c92 ") and ours.endswith(" ...") and " c99 ⟦red⟧ c0 " in ours
    assert theirs.startswith("  other  ... c92 ") and " c99 ⟦blue⟧ c0 " in theirs
    assert render.difference(None).plain == "the words are identical\n"

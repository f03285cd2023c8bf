"""The agreement of annotators, against figures of papers, scikit-learn and brute force; the coverage of intervals."""

import itertools
import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from lxml import html
from sklearn.metrics import cohen_kappa_score

from gristmill.flows.cli import judging
from gristmill.flows.curation import Outputs
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports import run_page
from gristmill.flows.reports.run import Run
from gristmill.flows.reports.run.agreement import (
    DOCUMENTS,
    ColumnAgreement,
    annotator_agreement,
    annotators_of_run,
    counted_by,
)
from gristmill.flows.stats.agreement import LEVEL, UnidentifiedError, agreement, classes_of
from tests.corpora import context
from tests.language_model.asking import limits, made, recipe, rows, texts
from tests.language_model.serving import serving

# Fleiss (1971) by Wikipedia: 14 annotators, 10 documents, 5 classes; kappa is .210
FLEISS = """
0 0 0 0 14
0 2 6 4 2
0 0 3 5 6
0 3 9 2 0
2 2 8 1 1
7 7 0 0 0
3 2 6 3 0
2 5 3 2 2
6 5 2 1 0
0 2 2 3 7
"""


def codes_of(*columns):
    return np.array(columns).T


def found(codes, classes, groups=None, ordinal=None):
    groups = np.arange(len(codes)) if groups is None else groups
    return agreement(codes, [str(number) for number in range(classes)], groups, ordinal)


def test_cohen_by_hand():
    """50 documents: 20 both yes, 5 and 10 mixed, 15 both no. Observed .7, by chance .5, so kappa is .4."""
    first, second = [1] * 25 + [0] * 25, [1] * 20 + [0] * 5 + [1] * 10 + [0] * 15
    both = found(codes_of(first, second), 2)
    assert both.method == "Cohen's kappa" and both.documents == 50 and both.annotators == 2
    assert both.kappa.value == pytest.approx(0.4) and both.kappa.observed == pytest.approx(0.7)
    assert both.kappa.low < 0.4 < both.kappa.high
    for each in both.classes.values():  # of two classes each is the other turned round
        assert (each.value, each.low, each.high) == (both.kappa.value, both.kappa.low, both.kappa.high)


def test_fleiss_by_the_paper():
    table = np.array([list(map(int, line.split())) for line in FLEISS.split("\n") if line])
    codes = np.repeat([np.repeat(np.arange(5), line) for line in table], 10, axis=0)  # ten times, as many as are needed
    whole = found(codes, 5)
    assert whole.method == "Fleiss' kappa" and whole.annotators == 14
    assert whole.kappa.value == pytest.approx(0.20993, abs=1e-5)
    # of a class as Fleiss (1971) has it: 1 - sum n(m - n) / (N m (m - 1) p q)
    for number, each in enumerate(whole.classes.values()):
        own, share = table[:, number], table[:, number].sum() / 140
        expected = 1 - (own * (14 - own)).sum() / (10 * 14 * 13 * share * (1 - share))
        assert each.value == pytest.approx(expected) and each.documents == 10 * np.count_nonzero(own)


def brute(codes, weight):
    """The mean weight of two annotators of a document, and of two drawn annotations, corrected for chance."""
    pairs = [weight(a, b) for row in codes for a, b in itertools.permutations(row, 2)]
    drawn = codes.reshape(-1)
    chance = np.mean([weight(a, b) for a in drawn for b in drawn])
    return (np.mean(pairs) - chance) / (1 - chance)


@pytest.mark.parametrize("annotators", [2, 3, 5])
def test_weights_of_grades(annotators):
    r = np.random.default_rng(annotators)
    truth = r.integers(6, size=40)
    codes = np.clip(truth[:, None] + r.integers(-1, 2, size=(40, annotators)), 0, 5)
    grades = np.array([0.0, 1, 2, 3, 4, 9])  # unequal distances count
    whole = found(codes, 6, ordinal=grades)
    assert whole.method.endswith("quadratic weights")
    if annotators > 2:
        assert whole.kappa.value == pytest.approx(brute(codes, lambda a, b: 1 - ((grades[a] - grades[b]) / 9) ** 2))
        assert found(codes, 6).kappa.value == pytest.approx(brute(codes, lambda a, b: a == b))
    else:
        first, second = codes.T
        weighted = found(codes, 6, ordinal=np.arange(6.0)).kappa.value
        assert weighted == pytest.approx(cohen_kappa_score(first, second, weights="quadratic", labels=range(6)))
        assert found(codes, 6).kappa.value == pytest.approx(cohen_kappa_score(first, second))
        for number, each in found(codes, 6).classes.items():
            if each is not None:
                of_class = cohen_kappa_score(first == int(number), second == int(number))
                assert each.value == pytest.approx(of_class)


def test_rows_that_count_several_documents_are_as_many_rows():
    """All of it, the intervals included."""
    draw = np.random.default_rng(3)
    for annotators in (2, 3):
        hosts = draw.integers(30, size=400)
        grades = draw.integers(4, size=400)[:, None] + draw.integers(2, size=(400, annotators))
        found, counts = np.unique(np.column_stack([hosts, grades]), axis=0, return_counts=True)
        assert len(found) < 390
        names, ordinal = [f"{grade}" for grade in range(5)], np.arange(5.0)
        each = agreement(grades, names, hosts, ordinal)
        assert agreement(found[:, 1:], names, found[:, 0], ordinal, counts) == each


def test_counts_of_annotations_do_not_grow_with_documents():
    draw, held = np.random.default_rng(5), []
    expected: Counter = Counter()

    def tables():
        for number in range(80):
            hosts, grades = draw.integers(40, size=3000), draw.integers(6, size=(2, 3000))
            expected.update(zip(*grades.tolist(), hosts.tolist(), strict=True))
            columns = {"a": grades[0], "b": grades[1].astype(float) if number % 2 else grades[1]}
            held.append(pa.total_allocated_bytes())
            yield pa.table({**columns, "host": [f"{host}.example" for host in hosts]})

    found = counted_by(tables(), ("a", "b", "host"))
    assert max(held[40:]) <= 1.1 * max(held[:40])
    rows = {(row["a"], row["b"], int(row["host"].partition(".")[0])): row[DOCUMENTS] for row in found.to_pylist()}
    assert rows == expected


@pytest.mark.extended
def test_intervals_cover_the_truth_also_where_documents_of_a_host_are_alike():
    """Two annotators who are each right in 85% of two equal classes: they agree on .745, so the true kappa is .49.
    Hosts have one to five documents that are alike, so without hosts intervals would be too short."""
    r = np.random.default_rng(11)
    runs = 120
    covered = {"hosts": 0, "documents": 0}
    for _ in range(runs):
        truth = r.integers(2, size=80)
        codes = np.where(r.random((80, 2)) < 0.15, 1 - truth[:, None], truth[:, None])
        hosts = np.repeat(np.arange(80), r.integers(1, 6, size=80))
        for name, groups in (("hosts", hosts), ("documents", np.arange(len(hosts)))):
            kappa = found(codes[hosts], 2, groups).kappa
            covered[name] += kappa.low <= 0.49 <= kappa.high
    assert LEVEL == 0.9 and 0.84 * runs <= covered["hosts"] <= 0.96 * runs, covered
    assert covered["documents"] < 0.75 * runs, "the hosts make a difference"


def test_the_summary_says_that_most_documents_are_of_one_host():
    codes = codes_of([0, 1] * 50, [0, 1] * 48 + [1, 0] * 2)
    for large, share in ((60, 0.6), (50, 0.5)):
        one = found(codes, 2, np.array([0] * large + [*range(1, 101 - large)]))
        summary = ColumnAgreement("score", {"a": 100, "b": 100}, one).summary
        assert one.largest_group == share
        assert summary.endswith("; 60% of them are of one host, so the intervals are too narrow") == (large == 60)


def test_an_interval_has_a_width_without_disagreement():
    same = np.arange(100) % 4
    kappa = found(codes_of(same, same), 4).kappa
    # disagreement on 3% of documents leaves no trace in 100 with a probability of 5%
    assert (kappa.value, kappa.high) == (1, 1) and kappa.low == pytest.approx((0.05**0.01 - 0.25) / 0.75)


@pytest.mark.parametrize(
    ("codes", "hosts", "sentence"),
    [
        (codes_of([0, 1] * 9, [0, 1] * 9), None, "18 documents of 18 hosts have all, and 20 of 10 hosts are needed"),
        (codes_of([0, 1] * 50, [0, 1] * 50), np.arange(100) // 20, "100 documents of 5 hosts have all"),
        (codes_of([2] * 100, [2] * 100), None, "all 100 documents have the class 2 by each annotator"),
        (codes_of([0] * 100, [0] * 90 + [1] * 10), None, "only 10 documents of 10 hosts have another class than 0"),
        (np.zeros((0, 2), int), None, "0 documents of 0 hosts have all"),
    ],
)
def test_what_is_not_identified_is_refused(codes, hosts, sentence):
    with pytest.raises(UnidentifiedError, match=sentence):
        found(codes, 3, hosts)


def test_rare_classes_have_no_kappa():
    first = np.array([0] * 50 + [1] * 45 + [2] * 5)
    classes = found(codes_of(first, np.roll(first, 3)), 3).classes
    assert classes["2"] is None and classes["0"] is not None and classes["1"] is not None


def test_classes_of_columns():
    codes, names, grades = classes_of([[0, 3, 3], [3.0, 0.0, 5.0]])
    assert codes.tolist() == [[0, 1], [1, 0], [1, 2]] and names == ["0", "3", "5"] and grades.tolist() == [0, 3, 5]
    assert classes_of([["b", "a"], ["a", "a"]])[1:] == (["a", "b"], None)
    assert classes_of([[True, False], [True, True]])[1:] == (["false", "true"], None)
    with pytest.raises(UnidentifiedError, match="120 different values"):
        classes_of([[*range(120)], [*range(120)]])


# Whole runs


NOISE = {-1: 0.2, 0: 0.6, 1: 0.2}


def annotated_recipe(folder, count=90) -> dict:
    """Three annotators, of which the second and third do not see what the first drops."""
    documents = [
        {"id": str(number), "text": text, "url": f"https://h{number % 30}.example/{number}", "label": number % 6}
        for number, text in enumerate(texts(count))
    ]
    whole = recipe(folder, {"web": documents})
    whole["sources"][0] |= {"url_column": "url", "columns": {"label": "label"}}
    extract, annotate = whole["steps"]
    second = {**annotate, "step": "annotate_second", "model": "other"}
    yes = {"user": "Is it good? {{ document }}", "answer": {"good": {"type": "boolean"}}}
    whole["steps"] = [
        extract,
        {**annotate, "of": 80},
        {**second, "of": 80},
        {"step": "where", "keep": "annotate_grade >= 2", "nulls": "keep"},
        {**annotate, "step": "annotate_good", "prompt": yes},
    ]
    return whole


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("agreement")
    whole = annotated_recipe(folder)
    with serving(latency=0.0, noise=NOISE, models="planted,other") as server, limits(server):
        stages = made(folder / "home", whole)
        billed = server.billed()
    return folder, whole, stages, billed


def test_steps_of_a_run_are_compared_before_later_steps_drop_documents(run):
    folder, whole, stages, billed = run
    settings = MachineSettings(home=str(folder / "home"))
    [one] = annotator_agreement(whole, settings=settings)
    # what the server answered, by the name of the document in its text
    grades: dict[str, dict[str, int]] = {}
    for line in billed:
        if "grade" in (value := json.loads(line["content"])):
            grades.setdefault(line["model"], {})[line["document"]] = value["grade"]
    first, second = grades["planted"], grades["other"]
    assert len(first) == len(second) == 80 and first.keys() == second.keys()
    names = sorted(first)
    expected = cohen_kappa_score([first[n] for n in names], [second[n] for n in names], weights="quadratic")
    assert one.value == "grade" and one.annotated == {"annotate_grade": 80, "annotate_second_grade": 80}
    assert one.agreement.kappa.value == pytest.approx(expected) and one.agreement.documents == 80
    assert one.agreement.groups == 30 and one.agreement.method == "Cohen's kappa with quadratic weights"
    assert len(rows(stages["annotate_good"])) < 80, "a later step drops documents"
    assert one.agreement.kappa.low < expected < one.agreement.kappa.high
    assert one.metrics()["agreement/grade/kappa"] == one.agreement.kappa.value
    assert "annotate_grade, annotate_second_grade is " in one.summary and one.table.rows[0][0] == "all"


def test_columns_of_the_sources_are_compared_too(run):
    folder, whole, _, _ = run
    settings = MachineSettings(home=str(folder / "home"))
    columns = ["annotate_grade", "annotate_second_grade", "label"]
    [one] = annotator_agreement(whole, columns, settings)
    assert one.annotated == {"annotate_grade": 80, "annotate_second_grade": 80, "label": 90}
    assert one.agreement.method == "Fleiss' kappa with quadratic weights" and one.agreement.annotators == 3
    for wrong, error, sentence in (
        (["annotate_grade", "nothing"], LookupError, "no column nothing"),
        (["annotate_grade", "annotate_reason"], ValueError, "values of different types"),
        (["annotate_grade"], ValueError, "needs two different columns"),
        (["label", "label"], ValueError, "needs two different columns"),
    ):
        with pytest.raises(error, match=sentence):
            annotator_agreement(whole, wrong, settings)


def test_the_page_and_the_command(run, monkeypatch, capsys):
    folder, whole, _, _ = run
    home = str(folder / "home")
    settings = MachineSettings(home=home)
    outputs = Outputs(context(home), load(whole))
    outputs.make("corpus")
    text = " ".join(html.fromstring(run_page.page(Run.of(outputs))).text_content().split())
    [one] = annotators_of_run(outputs.recipe, settings)
    assert f"Agreement of annotators {one.summary}." in text and f"{one.agreement.kappa.value:.3f}" in text
    path = folder / "recipe.json"
    path.write_text(json.dumps(whole))
    monkeypatch.setenv("GRISTMILL_HOME", home)
    judging.agreement(str(path), as_json=True)
    printed = json.loads(capsys.readouterr().out)
    assert [each["agreement"]["kappa"]["value"] for each in printed] == [one.agreement.kappa.value]
    judging.agreement(str(path), "annotate_grade, label")
    assert "annotate_grade, label is " in " ".join(capsys.readouterr().out.split())
    alone = {**whole, "steps": whole["steps"][:2]}
    with pytest.raises(ValueError, match="has no value that two steps `annotate` have"):
        annotator_agreement(alone, settings=settings)
    assert annotators_of_run(load(alone), settings) == []

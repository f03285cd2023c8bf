"""Identification of languages on lingua's test sentences: the shipped thresholds are measured again, and their effect
on the other half of the texts; unknown texts, lines in other languages, texts in capitals; the speed beside fastText's
own call. Other lengths and identifiers are in test_language_lengths.py."""

import random
import time
from base64 import b64encode
from collections import Counter, defaultdict
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from gristmill.tasks.documents.measure import measured
from gristmill.tasks.documents.step import UNKNOWN
from gristmill.tasks.models.language import CODES, MIN_SCORE, MIN_SCORES, UNKNOWN_BELOW, Language, lid_176, measure
from gristmill.tasks.models.mixed_languages import MixedLanguages
from tests.benchmarks.language_texts import canonical, lingua, ntrex, same

MODELS = pytest.mark.parametrize("model", ["py3langid", "lid.176"])
# Languages of which lingua has one script, and which are measured on NTREX, too.
IN_TWO_SCRIPTS = {"sr"}
GRID = [round(0.05 * i, 2) for i in range(4, 14)]
SENTENCES, PRECISION, ENOUGH = 4, 0.98, 0.95
Scored = list[tuple[str, str, float]]  # true language, label, score


@pytest.fixture(scope="module")
def sentences() -> dict[str, list[str]]:
    """By language."""
    return {canonical(code): lines for code, lines in lingua().items()}


@pytest.fixture(scope="module")
def texts(sentences) -> list[tuple[str, str]]:
    """Language and text: four sentences each."""
    return [
        (language, " ".join(lines[start : start + SENTENCES]))
        for language, lines in sentences.items()
        for start in range(0, len(lines) - SENTENCES + 1, SENTENCES)
    ]


def halves(model: str, texts: list[tuple[str, str]]) -> tuple[Scored, Scored]:
    result: tuple[Scored, Scored] = ([], [])
    labels, scores = scored(model, [text for _, text in texts])
    for (language, text), label, score in zip(texts, labels, scores, strict=True):
        result[blake2b(text.encode(), digest_size=1).digest()[0] % 2].append((language, label, score))
    return result


def scored(model: str, texts: list[str], unknown_below: float | None = 0) -> tuple[list[str], list[float]]:
    table = pa.table({"text": pa.array(texts, pa.large_string())})
    columns = measure(Language(model=model, unknown_below=unknown_below), table)
    return columns["language"].to_pylist(), columns["language_score"].to_pylist()


def kept_and_precision(rows: Scored, code: str, threshold: float) -> tuple[float, float]:
    """Of the language's texts the share that is kept; of all that are kept the share in its macrolanguage, where each
    language outside has as many texts as this one."""
    sizes: dict[str, int] = defaultdict(int)
    through: dict[str, int] = defaultdict(int)
    for language, label, score in rows:
        sizes[language] += 1
        through[language] += label == code and score >= threshold
    right = through[code] / sizes[code]
    wrong = sum(through[other] / sizes[other] for other in sizes if not same(other, code))
    return right, right / (right + wrong) if right else 0.0


def thresholds(rows: Scored, default: float) -> dict[str, float]:
    found = {}
    for code in sorted({language for language, _, _ in rows}):
        named = kept_and_precision(rows, code, 0)[0]
        if named < 0.5 or kept_and_precision(rows, code, default)[0] >= ENOUGH:
            continue
        good = [each for each in GRID if kept_and_precision(rows, code, each)[1] >= PRECISION]
        if good and good[0] < default:
            found[code] = good[0]
    return found


def show(found: dict[str, float], default: float, other: Scored) -> None:
    print(f"\nkept and precision on the other half of the texts, at {default} and at the threshold of the language")
    for code, threshold in found.items():
        before, after = (kept_and_precision(other, code, each) for each in (default, threshold))
        print(f"{code} {before[0]:.3f} {before[1]:.3f} -> {threshold:.2f}: {after[0]:.3f} {after[1]:.3f}")


@MODELS
@pytest.mark.bench
def test_thresholds(model, texts, capsys):
    measured, other = halves(model, texts)
    found = thresholds(measured, MIN_SCORE[model])
    with capsys.disabled():
        show(found, MIN_SCORE[model], other)
    there = {language for language, _ in texts} - IN_TWO_SCRIPTS
    assert found == {code: least for code, least in MIN_SCORES[model].items() if code in there}


@MODELS
@pytest.mark.bench
def test_thresholds_of_languages_that_lingua_lacks(model, sentences, request, capsys):
    """With --ntrex: the folder NTREX-128 of github.com/MicrosoftTranslator/NTREX."""
    rows: tuple[Scored, Scored] = ([], [])
    for group, lines in ntrex(request.config.getoption("--ntrex")).items():
        some = ["\n".join(lines[start : start + 5]) for start in range(0, len(lines) - 5, 25)]
        for number, (label, score) in enumerate(zip(*scored(model, some), strict=True)):
            rows[number % 2].append((canonical(group), label, score))
    there = set(sentences) - IN_TWO_SCRIPTS
    found = {code: least for code, least in thresholds(rows[0], MIN_SCORE[model]).items() if code not in there}
    with capsys.disabled():
        show(found, MIN_SCORE[model], rows[1])
        named = defaultdict(Counter)
        for language, label, score in (*rows[0], *rows[1]):
            named[language][label if score >= UNKNOWN_BELOW[model] else UNKNOWN] += 1
        for language, labels in named.items():
            right = sum(count for label, count in labels.items() if same(label, language)) / labels.total()
            if right < 0.95 and labels[UNKNOWN] < 0.95 * labels.total():
                most = ", ".join(f"{label} {count / labels.total():.0%}" for label, count in labels.most_common(3))
                print(f"{language}: named rightly {right:.0%}; {most}")
    assert found == {code: least for code, least in MIN_SCORES[model].items() if code not in there}


@MODELS
@pytest.mark.bench
def test_unknown(model, texts, capsys):
    """Of texts in languages that the model knows and names rightly, and of those that it does not know, how many are
    unknown."""
    languages, some = zip(*texts, strict=True)
    named, scores = scored(model, list(some))
    labels, _ = scored(model, list(some), unknown_below=None)
    known = {code for code in languages if any(same(code, each) for each in CODES[model])}
    right = np.array([same(*each) for each in zip(languages, named, strict=True)])
    strange = np.array([code not in known for code in languages])
    unknown = np.array(labels) == UNKNOWN
    with capsys.disabled():
        print(
            f"\nunknown: {unknown[right].mean():.2%} of texts that are named rightly, {unknown[strange].mean():.1%} of"
        )
        print(f"texts in {len(set(languages) - known)} languages that the model has not", end=", ")
        print(f"{unknown[~right & ~strange].mean():.1%} of those that it names wrongly")
        for least in (0.2, 0.3, 0.4, 0.5, 0.65):
            above = np.array(scores) >= least
            print(f"{least}: {above[right].mean():.1%} of {right.sum()} stay, {1 - above[strange].mean():.1%} go")
    assert unknown[right].mean() < 0.01
    assert unknown[strange].mean() > {"py3langid": 0.35, "lid.176": 0.9}[model]


@MODELS
@pytest.mark.bench
def test_lines_in_other_languages(model, sentences, capsys):
    """Of documents glued together of lines in two languages, the lines in the second that are cut, and those in the
    first."""
    draw = random.Random(3)
    codes = sorted(code for code in sentences if all(code in known for known in CODES.values()))
    documents = []
    for _ in range(1000):
        one = draw.choice(codes)
        two = draw.choice([code for code in codes if not same(code, one)])
        lines = [(True, line) for line in draw.sample(sentences[one], 12)]
        lines += [(False, line) for line in draw.sample(sentences[two], draw.choice([1, 2, 4, 8]))]
        draw.shuffle(lines)
        documents.append((one, lines))
    texts = ["\n".join(line for _, line in lines) for _, lines in documents]
    table = pa.table(
        {
            "id": [f"{at:032x}" for at in range(len(texts))],
            "text": pa.array(texts, pa.large_string()),
            "language": [one for one, _ in documents],
        }
    )
    found = measured(table, [MixedLanguages(model=model, cut=True)])
    gone = {True: 0, False: 0}
    for (_, lines), left in zip(documents, found.table["text"].to_pylist(), strict=True):
        stays = left.splitlines()
        for own, line in lines:
            gone[own] += line not in stays
    counts = {own: sum(each == own for _, lines in documents for each, _ in lines) for own in gone}
    recall, precision = gone[False] / counts[False], gone[False] / sum(gone.values())
    with capsys.disabled():
        print(f"\nlines: recall {recall:.3f}, precision {precision:.3f}; {gone[True] / counts[True]:.4f} of own lines")
    least_recall, least_precision = {"py3langid": (0.8, 0.99), "lid.176": (0.7, 0.96)}[model]
    assert recall > least_recall
    assert precision > least_precision


@MODELS
@pytest.mark.bench
def test_capitals(model, texts, capsys):
    chosen = [(code, text) for code, text in texts[::5] if code in CODES[model] and text.upper() != text.lower()]
    with capsys.disabled():
        for name, change in (("as they are", str), ("in capitals", str.upper), ("words in capitals", str.title)):
            labels, _ = scored(model, [change(text) for _, text in chosen])
            right = np.mean([found == language for found, (language, _) in zip(labels, chosen, strict=True)])
            print(f"\n{len(chosen)} texts {name}: {right:.3f} right")
            assert right > 0.9


@pytest.mark.bench
def test_speed(texts, capsys):
    some = [text for _, text in texts]
    column = pa.table({"text": pa.array(some, pa.large_string())})
    ratios = defaultdict(list)
    for _ in range(5):
        started = time.thread_time()
        lid_176().predict(some, k=1)
        between = time.thread_time()
        for model in CODES:
            began = time.thread_time()
            measure(Language(model=model), column)
            ratios[model].append((time.thread_time() - began) / (between - started))
    with capsys.disabled():
        for model, found in ratios.items():
            print(f"\nthe step with {model} takes {np.median(found):.2f} of the time of fastText's batch call")


@MODELS
@pytest.mark.bench
def test_short_lines(model, sentences, capsys):
    """Of lines of each length those that are named wrongly with 0.65 or more, and rightly."""
    lines = [(code, line) for code, some in sentences.items() for line in some if code in CODES[model]]
    labels, scores = scored(model, [line for _, line in lines])
    lengths = np.array([len(line) for _, line in lines])
    right = np.array([same(label, code) for label, (code, _) in zip(labels, lines, strict=True)])
    sure = np.array(scores) >= 0.65
    with capsys.disabled():
        print()
        for first, last in pairwise((1, 20, 30, 40, 50, 60, 80, 100, 10**9)):
            there = (lengths >= first) & (lengths < last)
            wrong, kept = (~right & sure)[there].mean(), (right & sure)[there].mean()
            print(f"{first} to {last - 1} characters: {wrong:.2%} wrong, {kept:.1%} right of {there.sum()}")


@MODELS
@pytest.mark.bench
def test_texts_that_are_no_language(model, sentences, capsys):
    """How many are unknown, and how many would be kept as English."""
    draw = random.Random(1)

    def words(first: int, last: int, count: int = 70) -> str:
        return " ".join("".join(map(chr, draw.choices(range(first, last), k=draw.randint(2, 8)))) for _ in range(count))

    prose = [line for code, lines in sentences.items() if code in CODES[model] for line in lines[:8]]
    source = [path.read_text(errors="ignore") for path in sorted(Path(random.__file__).parent.glob("*.py"))]
    kinds = {
        "numbers": [" ".join(f"{draw.randrange(10**6):,}" for _ in range(60)) for _ in range(100)],
        "prices": [
            " | ".join(f"${draw.random() * 99:.2f} {draw.randrange(24)}:30" for _ in range(20)) for _ in range(100)
        ],
        "addresses": [
            " ".join(f"https://{words(97, 123, 1)}.com/{draw.random()}" for _ in range(9)) for _ in range(100)
        ],
        "emoji": [words(0x1F300, 0x1F640) for _ in range(99)],
        "scripts of no language": [
            words(*each) for each in [(0x13A0, 0x13F4), (0x1401, 0x1670), (0x7CA, 0x7EB), (0x16A0, 0x16EA)] * 25
        ],
        "base64": [b64encode(draw.randbytes(300)).decode() for _ in range(99)],
        "random letters": [words(97, 123) for _ in range(99)],
        "words with shuffled letters": [
            " ".join("".join(draw.sample(word, len(word))) for word in line.split()) for line in prose
        ],
        "Python": [text[len(text) // 2 :][:1000] for text in source if len(text) > 3000],
    }
    for code in ("ru", "ja", "de"):
        kinds[f"UTF-8 of {code} read as Latin-1"] = [line.encode().decode("latin-1") for line in sentences[code][:100]]
    with capsys.disabled():
        print(f"\n{model}")
        for kind, some in kinds.items():
            labels, scores = scored(model, some, None)
            english = [label == "en" and score >= MIN_SCORE[model] for label, score in zip(labels, scores, strict=True)]
            print(f"| {kind} | {np.mean(np.array(labels) == UNKNOWN):.0%} | {np.mean(english):.0%} | {len(some)}")

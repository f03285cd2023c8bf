"""Which languages our models and peers name at four lengths, in close groups, and outside of what they know; what a
threshold leaves; CPU time. Peers that are not installed are left out: heliport, pycld2, lingua-language-detector."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from gristmill.tasks.models.language import CODES, MIN_SCORE, Language, measure
from tests.benchmarks.language_texts import Truth, canonical, lingua, ntrex, pieces, same

LENGTHS = (10, 30, 100, 1000)
OURS = ("py3langid", "lid.176")
GROUPS = (
    "bos hrv srp-Latn srp-Cyrl",
    "dan nob nno swe",
    "ind msa",
    "ces slk",
    "spa glg por cat",
    "fao isl",
    "dzo bod",
    "rus ukr bel bul mkd srp-Cyrl",
    "yor som hau ibo zul xho",
)
Answers = tuple[list[str], np.ndarray]
Identifier = Callable[[Sequence[str]], Answers]


def ask(model: str, texts: Sequence[str]) -> Answers:
    """Labels and probabilities by one of our models, without `unknown`."""
    table = pa.table({"text": pa.array(texts, pa.large_string())})
    columns = measure(Language(model=model, unknown_below=0, characters=10**6), table)
    return columns["language"].to_pylist(), columns["language_score"].to_numpy()


@cache
def identifiers() -> dict[str, Identifier]:
    """Ours, and the peers that are installed; those have no probability, so 1."""
    found: dict[str, Identifier] = {name: lambda texts, name=name: ask(name, texts) for name in OURS}
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        own = LanguageIdentifier.from_model_file(MODEL_FILE)
        found["py3langid's own loop"] = lambda texts: bare(own.classify(text)[0] for text in texts)
        import heliport

        heli = heliport.Identifier()
        found["heliport"] = lambda texts: bare(heli.identify(text.replace("\n", " ")) for text in texts)
        import pycld2

        found["CLD2"] = lambda texts: bare(cld2(pycld2, text) for text in texts)
        import lingua

        detector = lingua.LanguageDetectorBuilder.from_all_languages().with_low_accuracy_mode().build()
        found["lingua, low accuracy"] = lambda texts: bare(
            language.iso_code_639_1.name.lower() if (language := detector.detect_language_of(text)) else ""
            for text in texts
        )
    except ImportError as error:
        print(f"left out: {error.name} and peers after it")
    return found


def bare(labels) -> Answers:
    found = list(labels)
    return found, np.ones(len(found))


def cld2(pycld2, text: str) -> str:
    try:
        return pycld2.detect("".join(filter(str.isprintable, text)), bestEffort=True)[2][0][1]
    except pycld2.error:
        return ""


def by_group(truths: Sequence[Truth], values: np.ndarray) -> dict[str, float]:
    """Mean by file."""
    groups = np.array([truth.group for truth in truths])
    return {group: float(values[groups == group].mean()) for group in dict.fromkeys(groups.tolist())}


def answered(name: str, truths: Sequence[Truth]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Labels, probabilities, and whether the label is the language or its macrolanguage."""
    labels, scores = identifiers()[name]([truth.text for truth in truths])
    labels = [canonical(label) for label in labels]
    return labels, scores, np.array([same(label, truth.language) for label, truth in zip(labels, truths, strict=True)])


@pytest.fixture(scope="module")
def news(request) -> dict[str, list[str]]:
    return ntrex(request.config.getoption("--ntrex"))


@pytest.mark.bench
def test_lengths(news, capsys):
    """Macro average over files: each counts as much. NTREX has languages that an identifier lacks."""
    named = {}
    for kind, sentences in (("NTREX", news), ("lingua", lingua())):
        for characters in LENGTHS:
            truths = pieces(sentences, characters, 20)
            for name in identifiers():
                named[kind, characters, name] = np.mean(list(by_group(truths, answered(name, truths)[2]).values()))
    with capsys.disabled():
        for kind in ("NTREX", "lingua"):
            print(f"\nnamed rightly, {kind}, at {LENGTHS} characters")
            for name in identifiers():
                print(f"| {name} |", " | ".join(f"{named[kind, n, name]:.3f}" for n in LENGTHS), "|")
    for kind in ("NTREX", "lingua"):
        for n in LENGTHS:
            assert named[kind, n, "py3langid"] > named[kind, n, "lid.176"] + 0.05


@pytest.mark.bench
def test_close_languages(news, capsys):
    """Named rightly, macrolanguages not counted, at 30, 100 and 1,000 characters."""
    names = [name for name in identifiers() if name != "py3langid's own loop"]
    with capsys.disabled():
        print("\n| | " + " | ".join(names) + " |")
        for group in GROUPS:
            chosen = {name: news[name] for name in group.split()}
            cells: dict[str, list[str]] = {name: [] for name in names}
            for characters in LENGTHS[1:]:
                truths = pieces(chosen, characters, 40)
                for name in names:
                    labels = answered(name, truths)[0]
                    right = [label == truth.language for label, truth in zip(labels, truths, strict=True)]
                    cells[name].append(f"{np.mean(right):.2f}")
            print(f"| {group} |", " | ".join(" / ".join(cells[name]) for name in names), "|")


@pytest.mark.bench
def test_outside_and_thresholds(news, capsys):
    """Of all texts, those named rightly and wrongly with the threshold of each model, and of texts in languages that
    it does not know, those with that probability and what they are taken for."""
    wrong = {}
    with capsys.disabled():
        for characters in LENGTHS[1:]:
            truths = pieces(news, characters, 20)
            for name in OURS:
                labels, scores, right = answered(name, truths)
                known = {canonical(code) for code in CODES[name]}
                outside = np.array([not any(same(truth.language, code) for code in known) for truth in truths])
                print(f"\n{name}, {characters} characters; {len(truths)} texts, {outside.mean():.1%} outside")
                for least in sorted({0.2, 0.3, 0.5, 0.65, 0.8, 0.9, MIN_SCORE[name]}):
                    above = scores >= least
                    print(
                        f"  {least}: right {np.mean(right & above):.3f}, wrong {np.mean(~right & above):.3f}, kept of "
                        f"rightly named {above[right].mean():.3f}, of outside {above[outside].mean():.3f}"
                    )
                    wrong[name, characters, least] = np.mean(~right & above)
                taken = Counter(
                    (truth.group, label)
                    for truth, label, score, out in zip(truths, labels, scores, outside, strict=True)
                    if out and score >= MIN_SCORE[name]
                )
                print("  ", ", ".join(f"{a} as {b} {n}" for (a, b), n in taken.most_common(12)))
    assert wrong["py3langid", 30, 0.65] < wrong["lid.176", 30, 0.65]


@pytest.mark.bench
def test_temperature(news, capsys):
    """The divisor of log scores, from py3langid's own: on half of the texts the pair of scale and exponent is among
    the best by the squared error of the probability that the label is right; the other half shows what 0.5 keeps."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    own = LanguageIdentifier.from_model_file(MODEL_FILE)
    known = [canonical(code) for code in CODES["py3langid"]]
    texts = {}
    for characters in (10, 30, 100, 300, 1000, 5000):
        truths = pieces(news, characters, 8)
        ranks = [own.rank(truth.text) for truth in truths]
        texts[characters] = (
            np.array([[score for _, score in rank] for rank in ranks], np.float64),
            np.array([len(truth.text.encode()) for truth in truths], np.float64),
            np.array([same(canonical(rank[0][0]), truth.language) for rank, truth in zip(ranks, truths, strict=True)]),
            np.array([any(same(truth.language, code) for code in known) for truth in truths]),
        )

    def probabilities(scores: np.ndarray, sizes: np.ndarray, scale: float, exponent: float) -> np.ndarray:
        return 1 / np.exp((scores - scores[:, :1]) / (scale * sizes**exponent)[:, None]).sum(1)

    errors = {
        (scale, exponent): np.mean(
            [
                np.mean((probabilities(scores, sizes, scale, exponent) - right)[::2] ** 2)
                for scores, sizes, right, _ in texts.values()
            ]
        )
        for exponent in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
        for scale in (0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
    }
    with capsys.disabled():
        print("\n", [(pair, round(error, 4)) for pair, error in sorted(errors.items(), key=lambda row: row[1])[:8]])
        print("of the package", (1.0, 0.5), round(errors[1.0, 0.5], 4))
        for characters, (scores, sizes, right, inside) in texts.items():
            kept = probabilities(scores, sizes, 0.3, 0.8)[1::2] >= 0.5
            print(f"{characters}: {kept[right[1::2]].mean():.3f} of right, {kept[~inside[1::2]].mean():.3f} of outside")
    assert errors[0.3, 0.8] < 1.05 * min(errors.values()) < errors[1.0, 0.5]


@pytest.mark.bench
def test_cpu(news, capsys):
    """Microseconds of CPU for a text, of ours in calls as a stage makes them."""
    body = " ".join(line for lines in (news["eng-US"], news["deu"], news["rus"], news["fra"]) for line in lines)
    times = {}
    for characters in (30, 1000, 10000):
        texts = [body[start : start + characters] for start in range(0, len(body) - characters, characters)][:500]
        for name, identify in identifiers().items():
            identify(texts[:9])
            took = []
            for _ in range(3):
                started = time.thread_time()
                identify(texts)
                took.append((time.thread_time() - started) / len(texts) * 1e6)
            times[name, characters] = min(took)
    with capsys.disabled():
        print()
        for name in identifiers():
            print(f"| {name} |", " | ".join(f"{times[name, n]:.0f}" for n in (30, 1000, 10000)), "|")
    # py3langid's tables have 68 MB: beside other programs that fill the caches it takes as long, alone half
    assert all(times["py3langid", n] < 1.2 * times["lid.176", n] for n in (30, 1000, 10000))

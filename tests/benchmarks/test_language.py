"""Identification of languages on lingua's test sentences: the shipped thresholds are measured anew, and their effect on
the other half of the texts; texts in capitals; the speed beside fastText's own call."""

import os
import random
import tarfile
import time
from collections import Counter, defaultdict
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from gristmill.tasks.documents.measure import measured
from gristmill.tasks.documents.step import UNKNOWN
from gristmill.tasks.models.language import CODES, MIN_SCORES, UNKNOWN_BELOW, Language, measure, model
from gristmill.tasks.models.mixed_languages import MixedLanguages

MACROLANGUAGES = {
    **dict.fromkeys(("bs", "hr", "sr", "sh"), "hbs"),
    **dict.fromkeys(("id", "ms"), "msa"),
    **dict.fromkeys(("nb", "nn", "no"), "nor"),
}
# NTREX's codes of languages that lid.176 has, where they differ.
NTREX_CODES = dict(
    pair.split("=")
    for pair in (
        "afr=af amh=am arb=ar aze=az bak=ba bel=be ben=bn bod=bo bos=bs bul=bg cat=ca ces=cs cym=cy dan=da deu=de "
        "div=dv ell=el eng=en est=et eus=eu fas=fa prs=fa fil=tl fin=fi fra=fr gle=ga glg=gl guj=gu heb=he hin=hi "
        "hrv=hr hun=hu hye=hy ind=id isl=is ita=it jpn=ja kan=kn kat=ka kaz=kk khm=km kir=ky kmr=ku kor=ko lao=lo "
        "lav=lv lit=lt ltz=lb mal=ml mar=mr mkd=mk mlg=mg mlt=mt mon=mn msa=ms mya=my nep=ne nld=nl nno=nn nob=no "
        "pan=pa pol=pl por=pt pus=ps ron=ro rus=ru sin=si slk=sk slv=sl snd=sd som=so spa=es sqi=sq srp=sr swa=sw "
        "swe=sv tam=ta tat=tt tel=te tgk=tg tha=th tuk=tk tur=tr uig=ug ukr=uk urd=ur uzb=uz vie=vi yor=yo yue=zh "
        "zho=zh"
    ).split()
)
# Codes of heliport where they are not NTREX's.
HELIPORT_CODES = {"ara": "ar", "cmn": "zh", "pbt": "ps", "pes": "fa", "tgl": "tl", "uzn": "uz"}
GRID = [round(0.05 * i, 2) for i in range(4, 14)]
SENTENCES, PRECISION, ENOUGH = 4, 0.98, 0.95
Scored = list[tuple[str, str, float]]  # true language, label, score


@pytest.fixture(scope="module")
def sentences() -> dict[str, list[str]]:
    """By language."""
    if "GRISTMILL_TEST_DATA" not in os.environ:
        pytest.skip("GRISTMILL_TEST_DATA does not name the folder with the data sets")
    found = {}
    with tarfile.open(Path(os.environ["GRISTMILL_TEST_DATA"]) / "langid_lingua_sentences_75.tar.gz") as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            if member.name.startswith("sentences/") and member.isfile():
                lines = archive.extractfile(member).read().decode().splitlines()
                found[Path(member.name).stem] = [line.strip() for line in lines if line.strip()]
    return found


@pytest.fixture(scope="module")
def texts(sentences) -> list[tuple[str, str]]:
    """Language and text: four sentences each."""
    return [
        (language, " ".join(lines[start : start + SENTENCES]))
        for language, lines in sentences.items()
        for start in range(0, len(lines) - SENTENCES + 1, SENTENCES)
    ]


def halves(texts: list[tuple[str, str]]) -> tuple[Scored, Scored]:
    result: tuple[Scored, Scored] = ([], [])
    labels, scores = scored([text for _, text in texts])
    for (language, text), label, score in zip(texts, labels, scores, strict=True):
        result[blake2b(text.encode(), digest_size=1).digest()[0] % 2].append((language, label, score))
    return result


def scored(texts: list[str], unknown_below: float | None = 0) -> tuple[list[str], list[float]]:
    columns = measure(Language(unknown_below=unknown_below), pa.table({"text": pa.array(texts, pa.large_string())}))
    return columns["language"].to_pylist(), columns["language_score"].to_pylist()


def same(one: str, other: str) -> bool:
    return MACROLANGUAGES.get(one, one) == MACROLANGUAGES.get(other, other)


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


def thresholds(rows: Scored) -> dict[str, float]:
    found = {}
    for code in sorted({language for language, _, _ in rows}):
        named = kept_and_precision(rows, code, 0)[0]
        if named < 0.5 or kept_and_precision(rows, code, 0.65)[0] >= ENOUGH:
            continue
        good = [each for each in GRID if kept_and_precision(rows, code, each)[1] >= PRECISION]
        if good and good[0] < 0.65:
            found[code] = good[0]
    return found


@pytest.mark.bench
def test_thresholds(texts, capsys):
    measured, other = halves(texts)
    found = thresholds(measured)
    with capsys.disabled():
        print("\nkept and precision on the other half of the texts, at 0.65 and at the threshold of the language")
        for code, threshold in found.items():
            before, after = (kept_and_precision(other, code, each) for each in (0.65, threshold))
            print(f"{code} {before[0]:.3f} {before[1]:.3f} -> {threshold:.2f}: {after[0]:.3f} {after[1]:.3f}")
    assert found == {code: least for code, least in MIN_SCORES.items() if code in {language for language, _ in texts}}


@pytest.mark.bench
def test_thresholds_of_languages_that_lingua_lacks(sentences, request, capsys):
    """With --ntrex: the folder NTREX-128 of github.com/MicrosoftTranslator/NTREX."""
    if (folder := request.config.getoption("--ntrex")) is None:
        pytest.skip("--ntrex names no folder with NTREX-128")
    rows: tuple[Scored, Scored] = ([], [])
    for path in sorted(Path(folder).glob("newstest2019-ref.*.txt")):
        code = path.name.split(".")[1].partition("-")[0]
        lines = path.read_text(encoding="utf-8").splitlines()
        some = ["\n".join(lines[start : start + 5]) for start in range(0, len(lines) - 5, 25)]
        for number, (label, score) in enumerate(zip(*scored(some), strict=True)):
            rows[number % 2].append((NTREX_CODES.get(code, code), label, score))
    found = {code: least for code, least in thresholds(rows[0]).items() if code not in sentences}
    with capsys.disabled():
        print("\nkept and precision on the other half of the texts, at 0.65 and at the threshold of the language")
        for code, threshold in found.items():
            before, after = (kept_and_precision(rows[1], code, each) for each in (0.65, threshold))
            print(f"{code} {before[0]:.3f} {before[1]:.3f} -> {threshold:.2f}: {after[0]:.3f} {after[1]:.3f}")
        named = defaultdict(Counter)
        for language, label, score in (*rows[0], *rows[1]):
            named[language][label if score >= UNKNOWN_BELOW else UNKNOWN] += 1
        for language, labels in named.items():
            right = sum(count for label, count in labels.items() if same(label, language)) / labels.total()
            if right < 0.95 and labels[UNKNOWN] < 0.95 * labels.total():
                most = ", ".join(f"{label} {count / labels.total():.0%}" for label, count in labels.most_common(3))
                print(f"{language}: named rightly {right:.0%}; {most}")
    assert found == {code: least for code, least in MIN_SCORES.items() if code not in sentences}


@pytest.mark.bench
def test_beside_heliport(request, capsys):
    """HeLI's models by heliport, 220 languages, on NTREX-128 (--ntrex), and its speed. Both name one language of those
    that they have; a macrolanguage counts as right."""
    if (folder := request.config.getoption("--ntrex")) is None:
        pytest.skip("--ntrex names no folder with NTREX-128")
    heliport = pytest.importorskip("heliport").Identifier()
    truth, some = [], []
    for path in sorted(Path(folder).glob("newstest2019-ref.*.txt")):
        lines = path.read_text(encoding="utf-8").splitlines()
        some += ["\n".join(lines[start : start + 5]) for start in range(0, len(lines) - 5, 25)]
        truth += [path.name.split(".")[1].partition("-")[0]] * (len(some) - len(truth))
    measure(Language(), pa.table({"text": pa.array(some[:9], pa.large_string())}))
    started = time.thread_time()
    ours, _ = scored(some, unknown_below=None)
    between = time.thread_time()
    theirs = [heliport.identify(text.replace("\n", " ")) for text in some]
    ratio = (time.thread_time() - between) / (between - started)
    wanted = [NTREX_CODES.get(code, code) for code in truth]
    right = np.array([same(*each) for each in zip(ours, wanted, strict=True)])
    right_theirs = np.array(
        [same((NTREX_CODES | HELIPORT_CODES).get(a, a), b) for a, b in zip(theirs, wanted, strict=True)]
    )
    known = np.array([any(same(code, each) for each in CODES) for code in wanted])
    with capsys.disabled():
        print(
            f"\nnamed rightly, lid.176 and heliport: {known.sum()} texts in {len(set(np.array(wanted)[known]))}",
            end=" ",
        )
        print(f"languages of lid.176 {right[known].mean():.3f}, {right_theirs[known].mean():.3f};", end=" ")
        print(f"{(~known).sum()} in others {right[~known].mean():.3f}, {right_theirs[~known].mean():.3f};", end=" ")
        print(f"heliport takes {ratio:.2f} of the time of the step")
        for code in sorted(set(wanted)):
            of = np.array(wanted) == code
            if abs(right[of].mean() - right_theirs[of].mean()) > 0.1:
                most = Counter(np.array(theirs)[of].tolist()).most_common(1)[0]
                print(f"{code}: {right[of].mean():.2f}, {right_theirs[of].mean():.2f} ({most[0]})")


@pytest.mark.bench
def test_unknown(texts, capsys):
    """Of texts in languages that the model knows and names rightly, and of those that it does not know, how many are
    unknown."""
    languages, some = zip(*texts, strict=True)
    named, scores = scored(list(some))
    labels, _ = scored(list(some), unknown_below=None)
    known = {code for code in languages if any(same(code, each) for each in CODES)}
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
    assert unknown[strange].mean() > 0.9


@pytest.mark.bench
def test_lines_in_other_languages(sentences, capsys):
    """Of documents glued together of lines in two languages, the lines in the second that are cut, and those in the
    first."""
    draw = random.Random(3)
    codes = sorted(code for code in sentences if code in CODES)
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
    found = measured(table, [MixedLanguages(cut=True)])
    gone = {True: 0, False: 0}
    for (_, lines), left in zip(documents, found.table["text"].to_pylist(), strict=True):
        stays = left.splitlines()
        for own, line in lines:
            gone[own] += line not in stays
    counts = {own: sum(each == own for _, lines in documents for each, _ in lines) for own in gone}
    recall, precision = gone[False] / counts[False], gone[False] / sum(gone.values())
    with capsys.disabled():
        print(f"\nlines: recall {recall:.3f}, precision {precision:.3f}; {gone[True] / counts[True]:.4f} of own lines")
    assert recall > 0.7
    assert precision > 0.96


@pytest.mark.bench
def test_capitals(texts, capsys):
    known = {label for _, label, _ in halves(texts)[0]}
    chosen = [(language, text) for language, text in texts[::5] if language in known and text.upper() != text.lower()]
    with capsys.disabled():
        for name, change in (("as they are", str), ("in capitals", str.upper), ("words in capitals", str.title)):
            changed = [change(text) for _, text in chosen]
            labels, _ = scored(changed)
            bare = [row[0].removeprefix("__label__") for row in model().predict([t[:400] for t in changed], k=1)[0]]
            right, without = (
                np.mean([found == language for found, (language, _) in zip(some, chosen, strict=True)])
                for some in (labels, bare)
            )
            print(f"\n{len(chosen)} texts {name}: {right:.3f} right, {without:.3f} by the model alone")


@pytest.mark.bench
def test_speed(texts, capsys):
    some = [text for _, text in texts]
    column = pa.table({"text": pa.array(some, pa.large_string())})
    step = Language()
    ratios = []
    for _ in range(5):
        started = time.thread_time()
        model().predict([text[:400] for text in some], k=1)
        between = time.thread_time()
        measure(step, column)
        ratios.append((time.thread_time() - between) / (between - started))
    with capsys.disabled():
        print(f"\nthe step takes {np.median(ratios):.2f} of the time of fastText's batch call")

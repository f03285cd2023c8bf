"""The tools that the installation built, against Kneser-Ney smoothing written down a second time."""

import math
import random
import subprocess
from collections import Counter, defaultdict

import pytest

from gristmill.tasks.models import ngram_models
from gristmill.tasks.models.compiled import kenlm
from gristmill.tasks.models.ngram_models import BUILD_BINARY, LMPLZ

FALLBACK = (0.5, 1.0, 1.5)  # what --discount_fallback means without values


def run_lmplz(text: str, *options) -> subprocess.CompletedProcess:
    command = [LMPLZ, "-S", "64M", *map(str, options)]
    return subprocess.run(command, input=text.encode(), capture_output=True, timeout=120)


def estimate(text: str, *options) -> bytes:
    done = run_lmplz(text, *options)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def load(arpa: bytes, folder) -> kenlm.Model:
    path = folder / "model.arpa"
    path.write_bytes(arpa)
    return kenlm.Model(str(path))


def log10_probability(model: kenlm.Model, context: tuple, word: str) -> float:
    """log10 p(word | context); a context that is to start a sentence starts with <s>."""
    state, after = kenlm.State(), kenlm.State()
    if context[:1] == ("<s>",):
        model.BeginSentenceWrite(state)
        context = context[1:]
    else:
        model.NullContextWrite(state)
    for seen in context:
        model.BaseScore(state, seen, after)
        state, after = after, state
    return model.BaseScore(state, word, after)


def arpa_ngrams(arpa: bytes) -> dict[int, set]:
    """The n-grams of each order as they stand in the file, which must agree with the counts in its head."""
    declared, found, order = {}, defaultdict(set), None
    for line in arpa.decode().splitlines():
        if line.startswith("ngram "):
            n, count = line.removeprefix("ngram ").split("=")
            declared[int(n)] = int(count)
        elif line.endswith("-grams:"):
            order = int(line[1 : line.index("-")])
        elif order and "\t" in line:
            found[order].add(tuple(line.split("\t")[1].split(" ")))
    assert declared == {n: len(ngrams) for n, ngrams in found.items()}
    return found


def sample_text(seed: int, sentences: int, words: int) -> str:
    """Sentences of a random walk: common words have favourite successors, and there are many rare words."""
    rng = random.Random(seed)
    successors = [[rng.randrange(words) for _ in range(6)] for _ in range(words)]
    lines = []
    for _ in range(sentences):
        word, line = rng.randrange(words), []
        for _ in range(rng.randint(1, 12)):
            line.append(f"w{word}")
            likely = successors[word % words][min(int(rng.expovariate(0.6)), 5)]
            word = likely if rng.random() < 0.8 else int(words * rng.paretovariate(1)) - words
        lines.append(" ".join(line))
    return "\n".join(lines) + "\n"


def raw_counts(text: str, order: int) -> dict[int, Counter]:
    counts = {n: Counter() for n in range(1, order + 1)}
    for line in text.splitlines():
        sentence = ("<s>", *line.split(), "</s>")
        for n in counts:
            counts[n].update(sentence[i : i + n] for i in range(len(sentence) - n + 1))
    return counts


class KneserNey:
    """Interpolated modified Kneser-Ney: Chen and Goodman 1998, section 4.1.3, in dictionaries.

    The highest order counts occurrences; a lower one counts the distinct words to the left, except after
    <s>, to the left of which there is nothing (Heafield et al. 2013, section 3.2). Unigrams are interpolated
    with the uniform distribution over the words, </s> and <unk>.
    """

    def __init__(self, text: str, order: int, fallback: bool):
        raw = raw_counts(text, order)
        self.order = order
        self.counts = {order: raw[order]}
        for n in range(1, order):
            left = Counter(ngram[1:] for ngram in raw[n + 1])
            starting = {ngram: count for ngram, count in raw[n].items() if ngram[0] == "<s>"}
            self.counts[n] = Counter({**left, **starting})
        del self.counts[1][("<s>",)]
        self.vocabulary = {word for (word,) in self.counts[1]} | {"<unk>"}
        self.discounts, self.substituted = {}, 0
        for n, counts in self.counts.items():
            t = Counter(counts.values())
            try:
                y = t[1] / (t[1] + 2 * t[2])
                discounts = [k - (k + 1) * y * t[k + 1] / t[k] for k in (1, 2, 3)]
                usable = all(0 <= d <= k for k, d in enumerate(discounts, 1))
            except ZeroDivisionError:
                usable = False
            if not usable:
                assert fallback, f"the text is too small to estimate the discounts of order {n}"
                discounts = FALLBACK
                self.substituted += 1
            self.discounts[n] = discounts
        self.total, self.withheld = Counter(), Counter()
        for n, counts in self.counts.items():
            for ngram, count in counts.items():
                self.total[ngram[:-1]] += count
                self.withheld[ngram[:-1]] += self.discounts[n][min(count, 3) - 1]

    def probability(self, context: tuple, word: str) -> float:
        context = context[-(self.order - 1) :]
        lower = self.probability(context[1:], word) if context else 1 / len(self.vocabulary)
        if context not in self.total:
            return lower
        n = len(context) + 1
        count = self.counts[n][(*context, word)]
        kept = count - self.discounts[n][min(count, 3) - 1] if count else 0
        return (kept + self.withheld[context] * lower) / self.total[context]


def contexts_of(text: str, order: int, number: int) -> list[tuple]:
    rng = random.Random(5)
    seen = {ngram[:-1] for counts in raw_counts(text, order).values() for ngram in counts} - {()}
    return [(), ("never",), ("w1", "never"), *rng.sample(sorted(seen), number)]


@pytest.mark.parametrize(("order", "fallback"), [(3, False), (5, False), (5, True)])
def test_probabilities_are_those_of_kneser_ney(tmp_path, order, fallback):
    text = sample_text(seed=order, sentences=40 if fallback else 3000, words=60)
    truth = KneserNey(text, order, fallback)
    assert (truth.substituted > 0) == fallback
    model = load(estimate(text, "-o", order, *(["--discount_fallback"] if fallback else [])), tmp_path)
    assert model.order == order
    for context in contexts_of(text, order, 20):
        found = {word: log10_probability(model, context, word) for word in truth.vocabulary}
        assert abs(sum(10**value for value in found.values()) - 1) < 1e-4
        for word, value in found.items():
            assert abs(value - math.log10(truth.probability(context, word))) < 1e-4, (context, word)


def test_ngrams_are_those_of_the_text():
    text = sample_text(seed=1, sentences=2000, words=60)
    found = arpa_ngrams(estimate(text, "-o", 4))
    expected = {n: set(counts) for n, counts in raw_counts(text, 4).items()}
    expected[1].add(("<unk>",))
    assert found == expected


def test_prune_drops_ngrams_up_to_the_threshold_of_their_order():
    text = sample_text(seed=1, sentences=2000, words=60)
    found = arpa_ngrams(estimate(text, "-o", 4, "--prune", 0, 1, 3))
    for n, threshold in {1: 0, 2: 1, 3: 3, 4: 3}.items():
        kept = {ngram for ngram, count in raw_counts(text, 4)[n].items() if count > threshold}
        assert found[n] - {("<unk>",)} == kept


def test_limit_vocab_file_drops_ngrams_with_other_words(tmp_path):
    text = sample_text(seed=1, sentences=2000, words=60)
    allowed = {f"w{i}" for i in range(0, 60, 2)}
    (tmp_path / "words").write_text("\n".join(sorted(allowed)))
    found = arpa_ngrams(estimate(text, "-o", 3, "--limit_vocab_file", tmp_path / "words"))
    for n, counts in raw_counts(text, 3).items():
        kept = {ngram for ngram in counts if set(ngram) <= allowed | {"<s>", "</s>"}}
        assert found[n] - {("<unk>",)} == kept


def test_discounts_of_the_command_line_are_used(tmp_path):
    # "a a": a stands before a and after <s>, so its unigram count is 2; </s> follows only a. Both lie outside
    # the closed form, so D1 = 0.25 and D2 = 0.5: p(a) = (2 - 0.5)/3 + (0.25 + 0.5)/3 * 1/3.
    model = load(estimate("a a\n", "-o", 2, "--discount_fallback", 0.25, 0.5), tmp_path)
    assert 10 ** log10_probability(model, (), "a") == pytest.approx(1.5 / 3 + 0.75 / 3 / 3, abs=1e-5)
    assert 10 ** log10_probability(model, (), "</s>") == pytest.approx(0.75 / 3 + 0.75 / 3 / 3, abs=1e-5)
    assert 10 ** log10_probability(model, (), "other") == pytest.approx(0.75 / 3 / 3, abs=1e-5)


@pytest.mark.parametrize("symbol", ["<unk>", "<s>", "</s>"])
def test_symbols_in_the_text_are_an_error_or_blanks(symbol):
    text = sample_text(seed=1, sentences=2000, words=60)
    with_symbols = text.replace(" ", f" {symbol} ", 20)
    failed = run_lmplz(with_symbols, "-o", 3)
    assert failed.returncode == 1
    assert symbol in failed.stderr.decode() and "--skip_symbols" in failed.stderr.decode()
    assert estimate(with_symbols, "-o", 3, "--skip_symbols") == estimate(text, "-o", 3)


def test_files_give_what_the_pipes_give(tmp_path):
    text = sample_text(seed=1, sentences=2000, words=60)
    (tmp_path / "text").write_text(text)
    files = [f"--text={tmp_path / 'text'}", f"--temp_prefix={tmp_path}", f"--arpa={tmp_path / 'arpa'}"]
    assert estimate("", "--order=3", *files) == b""
    assert (tmp_path / "arpa").read_bytes() == estimate(text, "-o", 3)
    assert {path.name for path in tmp_path.iterdir()} == {"text", "arpa"}


def test_little_memory_changes_nothing_but_the_speed():
    text = sample_text(seed=4, sentences=5000, words=200)
    assert estimate(text, "-o", 5, "--vocab_estimate", 1000, "-S", "1.5M") == estimate(text, "-o", 5)


@pytest.mark.parametrize("layout", ["probing", "trie"])
def test_build_binary_keeps_the_scores(tmp_path, layout):
    text = sample_text(seed=1, sentences=2000, words=60)
    model = load(estimate(text, "-o", 5), tmp_path)
    binary = tmp_path / "model.binary"
    subprocess.run([BUILD_BINARY, layout, tmp_path / "model.arpa", binary], check=True, capture_output=True)
    mapped = kenlm.Model(str(binary))
    for line in sample_text(seed=7, sentences=50, words=70).splitlines():
        assert mapped.score(line) == pytest.approx(model.score(line), abs=1e-4)


def test_a_text_too_small_for_discounts_fails():
    failed = run_lmplz("a b c\na b\n", "-o", 3)
    assert failed.returncode == 1
    assert "--discount_fallback" in failed.stderr.decode()


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_text_without_a_word_fails(text):
    failed = run_lmplz(text, "-o", 3, "--discount_fallback")
    assert (failed.returncode, failed.stdout) == (1, b"")
    assert "no word" in failed.stderr.decode()


@pytest.mark.parametrize("option", ["--text", "--limit_vocab_file", "--temp_prefix"])
def test_a_file_that_is_not_there_fails_by_name(tmp_path, option):
    failed = run_lmplz("a b c\na b\n", "-o", 3, "--discount_fallback", option, tmp_path / "none" / "there")
    assert failed.returncode == 1
    assert str(tmp_path / "none" / "there") in failed.stderr.decode()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "-o is required"),
        (["-o"], "-o needs a value"),
        (["-o", "3x"], "'3x'"),
        (["-o", "7"], "from 2 to 6"),
        (["-o", "-3"], "'-3'"),
        (["-o", "3", "--bogus"], "unknown option '--bogus'"),
        (["-o", "3", "stray"], "unknown option 'stray'"),
        (["-o", "3", "-S", "1Q"], "'1Q'"),
        (["-o", "3", "-S", "-1G"], "'-1G'"),
        (["-o", "3", "--prune"], "--prune needs a value"),
        (["-o", "3", "--prune", "2", "1"], "must not decrease"),
        (["-o", "3", "--prune", "0", "0", "0", "1"], "4 thresholds"),
        (["-o", "3", "--discount_fallback", "0.5", "2.5"], "0 to 2"),
        (["-o", "3", "--skip_symbols=yes"], "takes no value"),
    ],
)
def test_a_wrong_command_line_is_refused(options, complaint):
    refused = run_lmplz("a b c\n", *options)
    assert refused.returncode == 2
    assert refused.stdout == b""
    assert complaint in refused.stderr.decode()


def test_help_names_every_option():
    shown = run_lmplz("", "--help")
    assert shown.returncode == 0
    options = "--order --memory --temp_prefix --text --arpa --vocab_estimate --prune --limit_vocab_file"
    for option in f"{options} --discount_fallback --skip_symbols --help".split():
        assert option in shown.stdout.decode()


def test_tool_gives_the_executables_or_the_remedy(tmp_path):
    assert ngram_models.tool("lmplz") == LMPLZ
    assert ngram_models.tool("build_binary") == BUILD_BINARY
    with pytest.raises(ValueError, match="interpolate"):
        ngram_models.tool("interpolate")
    with pytest.raises(FileNotFoundError, match="pip install"):
        ngram_models.tool("lmplz", tmp_path)

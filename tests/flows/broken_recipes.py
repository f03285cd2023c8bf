"""Forty broken recipes: what is replaced in a whole one, and what the one line about it has to name.

`BASE` is whole where `{files}` is a folder with `web.jsonl`.
"""

from dataclasses import dataclass

BASE = """\
name: trial
seed: 3
sources:
  - name: web
    jsonl: ["{files}/web.jsonl"]
  - name: books
    jsonl: ["{files}/books.jsonl"]
steps:
  - step: extract
    max_bytes: 1000000
  - step: language
    keep: [en]
  - step: gopher_quality
    min_words: 50
  - step: minhash
    bands: 16
  - step: perplexity
    reference: [books]
tokenizer:
  vocab_size: 4096
mixture:
  weights: {web: 0.7, books: 0.3}
model:
  dim: 128
training:
  steps: 240
"""


@dataclass(frozen=True)
class Broken:
    """`old` is replaced by `new` in BASE. `key`, `value`, `remedy`: what the line names; `place`: where it says that
    the mistake stands, line and column for what is no YAML."""

    name: str
    old: str
    new: str
    key: str
    value: str
    remedy: str
    place: str


BROKEN = (
    # no YAML
    Broken("a bracket is open", "keep: [en]", "keep: [en", "13:9", "':'", "close every bracket", "13:9"),
    Broken("a tab indents", "    keep", "\tkeep", "12:1", "\\t", "indent with spaces", "12:1"),
    Broken("a colon too many", "seed: 3", "seed: 3: 4", "2:8", "mapping values", "put a value with a colon", "2:8"),
    Broken("a key stands twice", "seed: 3", "name: other", "2:1", "name", "remove one", "2:1"),
    Broken("an alias holds itself", "seed: 3", "seed: &a [*a]", "2:7", "alias", "write the values out", "2:7"),
    Broken(
        "a bomb of aliases", "seed: 3", "seed: &a [1]\nx: [" + "*a, " * 17 + "]", "3:69", "16 aliases", "write", "3:69"
    ),
    Broken("an alias of nothing", "seed: 3", "seed: *a", "2:7", "'a'", "correct this line", "2:7"),
    # keys
    Broken(
        "a key of the recipe", "tokenizer:", "tokeniser:", "tokeniser", "vocab_size", "did you mean `tokenizer`", "19"
    ),
    Broken("a key of a step", "min_words", "min_wrods", "steps.gopher_quality.min_wrods", "50", "`min_words`", "14"),
    Broken(
        "a key of a source",
        '    jsonl: ["{files}/web',
        '    jsnl: ["{files}/web',
        "sources.web",
        "jsnl",
        "`jsonl`",
        "4",
    ),
    Broken("a key of old", "bands: 16", "survivor: longest", "steps.minhash", "survivor", "`keep`", "15"),
    Broken("a recipe has no name", "name: trial\n", "", "name", "missing", "add it", "1"),
    Broken(
        "a filter has no reference",
        "    reference: [books]\n",
        "",
        "steps.perplexity",
        "neither `reference` nor `models`",
        "give",
        "17",
    ),
    Broken("a step has no name", "- step: minhash\n    bands", "- bands", "steps[3]", "bands", "`- step: NAME`", "15"),
    # values
    Broken("a text for a number", "seed: 3", "seed: three", "seed", "'three'", "whole number", "2"),
    Broken("half a seed", "seed: 3", "seed: 3.5", "seed", "3.5", "whole number", "2"),
    Broken("a text for a list", "keep: [en]", "keep: en", "steps.language.keep", "'en'", "a list", "12"),
    Broken("an unknown step", "step: minhash", "step: minhsh", "steps.minhsh", "'minhsh'", "`minhash`", "15"),
    Broken("an unknown option", "bands: 16", "keep: [longst]", "steps.minhash.keep[0]", "'longst'", "`longest`", "16"),
    Broken("a language of three letters", "keep: [en]", "keep: [eng]", "steps.language.keep", "eng", "`en`", "12"),
    Broken("Norway", "keep: [en]", "keep: [no]", "steps.language.keep[0]", "False", "in quotes", "12"),
    Broken("a name with a space", "name: trial", "name: my trial", "name", "'my trial'", "lowercase letters", "1"),
    Broken("a name of 5,000 letters", "name: trial", f"name: {'a' * 5000}", "name", "aaa", "100", "1"),
    Broken("no bytes", "max_bytes: 1000000", "max_bytes: 0", "steps.extract.max_bytes", "0", "above 0", "10"),
    Broken("a weight of nothing", "books: 0.3", "books: 0", "mixture.weights", "'books': 0", "remove the source", "22"),
    Broken("training without end", "steps: 240", "steps: .inf", "training.steps", "inf", "a finite number", "26"),
    Broken("a vocabulary of letters", "4096", "260", "tokenizer.vocab_size", "260", "above 300", "20"),
    Broken("a vocabulary too large", "4096", "7000000", "tokenizer.vocab_size", "7000000", "at most 1,048,576", "20"),
    # contradictions
    Broken(
        "min above max",
        "min_words: 50",
        "min_words: 9\n    max_words: 5",
        "steps.gopher_quality",
        "9",
        "swap or change them",
        "13",
    ),
    Broken("a share of two", "min_words: 50", "min_alpha_words: 2", "steps.gopher_quality", "2", "from 0 to 1", "13"),
    Broken("more bands than values", "bands: 16", "bands: 17", "steps.minhash", "17", "raise permutations", "15"),
    Broken("less text than words", "4096", "4096\n  sample_bytes: 5000", "tokenizer", "5000", "at least 8192", "19"),
    Broken("heads that do not divide", "dim: 128", "dim: 100\n  heads: 8", "model", "100", "use a dim of", "23"),
    Broken("a warm-up without end", "steps: 240", "steps: 10", "training", "10", "lower it", "25"),
    Broken(
        "percentiles turned round",
        "[books]",
        "[books]\n    min_percentile: 97",
        "steps.perplexity",
        "97",
        "lower",
        "17",
    ),
    Broken(
        "a filter of all",
        "reference: [books]",
        "reference: [web, books]",
        "steps.perplexity.reference",
        "web",
        "add a",
        "18",
    ),
    Broken("an unknown source", "{web: 0.7, books", "{web: 0.7, boks", "mixture.weights.boks", "boks", "`books`", "22"),
    Broken(
        "a step twice",
        "step: gopher_quality\n    min_words: 50",
        "step: language",
        "steps.language",
        "language",
        "once",
        "13",
    ),
    Broken(
        "no best signal",
        "bands: 16",
        "keep: [best]\n    best: qualty",
        "steps.minhash.best",
        "qualty",
        "give one of",
        "17",
    ),
    # files
    Broken("no such file", "web.jsonl", "wob.jsonl", "sources.web.jsonl[0]", "wob.jsonl", "correct the path", "5"),
    Broken(
        "a pattern of nothing", "web.jsonl", "*.gz", "sources.web.jsonl[0]", "*.gz", "correct the path or pattern", "5"
    ),
    Broken("a folder", "/web.jsonl", "", "sources.web.jsonl[0]", "a folder", "name the files in it", "5"),
    Broken("no list", "bands: 16", "takedowns: [/no/list]", "steps.minhash.takedowns[0]", "/no/list", "correct", "16"),
    Broken(
        "no earlier crawl",
        "bands: 16",
        "earlier: [/no/crawl]",
        "steps.minhash.earlier[0]",
        "/no/crawl",
        "give its",
        "16",
    ),
)

"""How plainly the documentation is written: words per sentence, and how often it uses words of a private dialect.

    python -m tools.words docs README.md

Prints a row for each file and one for all: words, words per sentence, and the dialect words that occur; then each
dialect word per 1,000 words, and its limit, which is twice the rate of the peer that uses it most. Exit status 1 if a
file has more than MAX_WORDS words per sentence in the mean, or a dialect word is above its limit over all files. No
code, headings, addresses of links, or front matter counts; cells of tables count for dialect words only.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

# Words per sentence, in the mean of a page.
MAX_WORDS = 18
# Each dialect word, and its highest rate per 1,000 words in the documentation of Polars (docs/source), DuckDB,
# torchtitan, uv and Ruff (docs/) in November 2026: `python -m tools.words --peers FOLDER...` counts a peer's.
DIALECT: dict[str, float] = {
    "behind": 0.15,
    "alone": 0.43,
    "said": 0.07,
    "stands": 0.07,
    "those of": 0.15,
    "anew": 0.00,
    "likewise": 0.02,
    "in place of": 0.06,
    "ahead": 0.04,
    "one's own": 0.02,
    "lies in": 0.00,
    "is said": 0.00,
    "goes on": 0.00,
    "is no": 0.35,
    "what of": 0.00,
    "by heart": 0.00,
    "not there": 0.00,
    "beside": 0.00,
}
# What a word is as a regular expression, where it isn't the word itself.
FORMS: dict[str, str] = {
    "those of": r"(?:those|that) of",
    "stands": r"stands|stand in|stood",
    "one's own": r"one's own|\w+ of (?:your|its|their) own(?! \w)",
    "lies in": r"(?:lies|lie) (?:in|under|behind)",
    "is said": r"(?:is|are) said",
    "goes on": r"goes on|go on",
    "is no": r"(?:is|are) no (?!longer)\w+",
    "what of": r"what (?:of (?!it\b)|came of|it takes)",
    "by heart": r"by heart",
    "ahead": r"ahead(?! of time)",
    "not there": r"(?:is|are) (?:not )?there(?=[.,;:])",
    "in place of": r"in place of",
}

_FENCE = re.compile(r"^\s*(```+|~~~+).*?^\s*\1\s*$", re.MULTILINE | re.DOTALL)
_ADDRESS = re.compile(r"\]\([^)]*\)")
_END = re.compile(r"(?<=[.!?:])[\"')\]*_]*\s+(?=[\"'(\[`*_]*[A-Z0-9`])")
_WORD = re.compile(r"[\w'’`./%-]*\w[\w'’`./%-]*")


def prose(text: str) -> list[str]:
    """The sentences of a Markdown page's prose. List items and paragraphs end a sentence."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", _FENCE.sub("\n\n", text), flags=re.DOTALL)
    paragraphs, lines = [], []
    for line in [*text.splitlines(), ""]:
        left = line.strip()
        starts = re.match(r"([-*+]|\d+[.)])\s+", left)
        if (
            not left
            or starts
            or left[0] in "|#<:="
            or left.startswith(("!!!", "???", "--8<--"))
            or line.startswith("    ")
        ):
            if lines:
                paragraphs.append(" ".join(lines))
            lines = [left[starts.end() :]] if starts else []
        else:
            lines.append(left)
    plain = (_ADDRESS.sub("]", paragraph).replace("e.g. ", "eg ").replace("i.e. ", "ie ") for paragraph in paragraphs)
    return [sentence for each in plain for sentence in _END.split(each) if len(_WORD.findall(sentence)) > 2]


def cells(text: str) -> list[str]:
    """The cells of a page's tables."""
    rows = re.findall(r"^\s*\|(.*)\|\s*$", _FENCE.sub("\n\n", text), re.MULTILINE)
    return [_ADDRESS.sub("]", cell) for row in rows if not set(row) <= set("|-: ") for cell in row.split("|")]


def occurrences(sentences: Iterable[str]) -> tuple[int, Counter[str]]:
    """(words, occurrences of each dialect word)."""
    text = "\n".join(sentences)
    spoken = re.sub(r"`[^`\n]*`", "`code`", text).lower()
    counts = {word: len(re.findall(rf"\b(?:{FORMS.get(word, word)})\b", spoken)) for word in DIALECT}
    return len(_WORD.findall(text)), Counter(counts)


def pages(paths: Iterable[str]) -> Iterator[Path]:
    for name in paths:
        path = Path(name)
        yield from sorted(path.rglob("*.md")) if path.is_dir() else [path]


def rates(paths: Iterable[str]) -> dict[str, float]:
    """Occurrences of each dialect word per 1,000 words over all pages."""
    texts = [path.read_text(encoding="utf-8") for path in pages(paths)]
    words, counts = occurrences([line for text in texts for line in (*prose(text), *cells(text))])
    return {word: 1000 * counts[word] / max(words, 1) for word in DIALECT}


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--peers"]:
        of_peers = [rates([folder]) for folder in arguments[1:]]
        for word in DIALECT:
            print(f'    "{word}": {max(each[word] for each in of_peers):.2f},')
        return 0
    bad, all_sentences, all_cells = 0, [], []
    print(f"{'page':44} {'words':>7} {'a sentence':>10}")
    for path in pages(arguments):
        text = path.read_text(encoding="utf-8")
        sentences, table = prose(text), cells(text)
        all_sentences += sentences
        all_cells += table
        words, _ = occurrences(sentences)
        mean = words / max(len(sentences), 1)
        _, counts = occurrences([*sentences, *table])
        bad += mean > MAX_WORDS
        used = ", ".join(f"{word} {count}" for word, count in counts.most_common() if count)
        print(f"{str(path):44} {words:7,} {mean:10.1f}{'!' if mean > MAX_WORDS else ' '} {used}")
    words, _ = occurrences(all_sentences)
    print(f"{'all':44} {words:7,} {words / max(len(all_sentences), 1):10.1f}\n")
    words, counts = occurrences([*all_sentences, *all_cells])
    print(f"{'dialect word':14} {'per 1,000':>9} {'limit':>6}")
    for word, highest in DIALECT.items():
        rate, limit = 1000 * counts[word] / max(words, 1), 2 * highest
        bad += rate > limit
        print(f"{word:14} {rate:9.2f} {limit:6.2f}{'  above the limit' if rate > limit else ''}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

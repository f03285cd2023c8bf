"""The dataset card of an export: a README.md as the Hugging Face Hub and `datasets.load_dataset` read it.

Layout of the header: https://huggingface.co/docs/hub/datasets-cards and .../datasets-manual-configuration.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import yaml

from gristmill.storage import files
from gristmill.tasks.documents.export import CARRIED, SUFFIXES, Column, OwnColumn
from gristmill.tasks.documents.step import UNKNOWN, Settings

# Languages with a smaller share of the documents are not in the header, where a language is a claim.
_MIN_SHARE = 0.01
# https://github.com/huggingface/hub-docs/blob/main/datasetcard.md: size_categories
_SIZES = (
    (10**3, "n<1K"),
    (10**4, "1K<n<10K"),
    (10**5, "10K<n<100K"),
    (10**6, "100K<n<1M"),
    (10**7, "1M<n<10M"),
    (10**8, "10M<n<100M"),
    (10**9, "100M<n<1B"),
    (10**10, "1B<n<10B"),
    (10**11, "10B<n<100B"),
    (10**12, "100B<n<1T"),
)
_CARRIED = {
    "id": "xxh3-128 of source, file, offset, length and record id, hexadecimal",
    "text": "the curated text",
    "url": "where the document was found; null where that is not known",
    "date": "when it was crawled, as the crawler wrote it",
    "source": "the recipe's name of the source",
}


class FunnelStep(Settings):
    """What a step let through, and how many documents each of its rules dropped."""

    step: str
    documents_in: int
    documents_out: int
    drops: dict[str, int]


class Card(Settings):
    """What a card says besides what is counted. `recipe`: as YAML; `releases`: (distribution, release); `where`: the
    expression that chose among the recipe's documents, None where all are here."""

    name: str
    recipe: str
    funnel: tuple[FunnelStep, ...]
    columns: tuple[Column, ...]
    own: tuple[OwnColumn, ...] = ()
    format: str
    releases: tuple[tuple[str, str], ...]
    where: str | None = None


_ZSTANDARD = {"jsonl": ("`datasets` reads these files if the package `zstandard` is installed.", "")}


def write_card(folder: str, number: int, card: Card, written: Sequence[tuple[str, str | None, int, int]]) -> dict:
    """Write README.md. `written`: (source, language, documents, characters)."""
    documents, characters = sum(row[2] for row in written), sum(row[3] for row in written)
    lines = [
        "---",
        *yaml.safe_dump(_header(card, written, documents), sort_keys=False, allow_unicode=True).splitlines(),
        "# license: not filled in. Name the licence of the texts here before you publish them",
        "---",
        "",
        f"# {card.name}",
        "",
        f"{documents:,} documents with {characters:,} characters (Unicode code points), made by Gristmill with the "
        "recipe below.",
        "",
        *_condition(card),
        "**Licence: not filled in.** The texts are those of their authors. Whoever publishes this folder names a "
        "licence here and as `license` in the header.",
        "",
        "```python",
        "from datasets import load_dataset",
        "",
        'documents = load_dataset("PATH OF THIS FOLDER", split="train")',
        "```",
        "",
        *_ZSTANDARD.get(card.format, ()),
        "## Documents by source",
        "",
        *_table_by("source", ((row[0], row[2], row[3]) for row in written), documents),
        "",
        "## Documents by language",
        "",
        *_table_by("language", ((row[1] or "not measured", row[2], row[3]) for row in written), documents),
        "",
        "## Funnel",
        "",
        *_table(
            ("step", "documents in", "documents out", "kept", "dropped by rule"),
            (
                (
                    row.step,
                    f"{row.documents_in:,}",
                    f"{row.documents_out:,}",
                    _share(row.documents_out, row.documents_in),
                    ", ".join(f"{rule} {n:,}" for rule, n in sorted(row.drops.items(), key=lambda d: (-d[1], d[0]))),
                )
                for row in card.funnel
            ),
        ),
        "",
        "## Columns",
        "",
        "What steps measured is null where they did not look at a document, as at the reference of a learned filter.",
        "",
        *_table(
            ("column", "type", "unit", "definition"),
            [(name, "string", "", _CARRIED[name]) for name in CARRIED]
            + [(column.name, column.type, "", "of the source, as its files have it") for column in card.own]
            + [(column.name, column.kind, column.unit, _definition(column)) for column in card.columns],
        ),
        "",
        "## Recipe",
        "",
        "~~~yaml",
        *card.recipe.splitlines(),
        "~~~",
        "",
        "## Made with",
        "",
        *_table(("distribution", "release"), card.releases),
        "",
        "`manifest.json` holds the digest of `parts.json`, and this the size and xxh3-128 of every file.",
        "",
    ]
    files.write_bytes(files.join(folder, "README.md"), "\n".join(lines).encode())
    return {"documents": documents, "characters": characters}


def _header(card: Card, counts: Sequence[tuple[str, str | None, int, int]], documents: int) -> dict:
    by_language: Counter[str] = Counter()
    for _, language, count, _ in counts:
        if language is not None and language != UNKNOWN:
            by_language[language] += count
    languages = sorted(name for name, count in by_language.items() if count >= _MIN_SHARE * documents)
    size = next((name for most, name in _SIZES if documents < most), "n>1T")
    return {
        "pretty_name": card.name,
        **({"language": languages} if languages else {}),
        "task_categories": ["text-generation"],
        "size_categories": [size],
        # without them, types are guessed from the first lines of JSON, and a column without values has none
        "dataset_info": {
            "features": [
                *({"name": name, "dtype": "large_string" if name == "text" else "string"} for name in CARRIED),
                *({"name": column.name, **column.feature} for column in card.own),
                *({"name": column.name, "dtype": column.kind} for column in card.columns),
            ]
        },
        "configs": [{"config_name": "default", "data_files": f"data/*.{SUFFIXES[card.format]}"}],
    }


def _condition(card: Card) -> Sequence[str]:
    if card.where is None:
        return ()
    documents = f"the {card.funnel[-1].documents_out:,} documents" if card.funnel else "the documents"
    fence = "`" * (1 + max(map(len, re.findall("`+", card.where)), default=0))
    return (
        f"Of {documents} that the recipe keeps, these are those for which {fence} {card.where} {fence} is true.",
        "",
    )


def _table_by(what: str, counts: Iterable[tuple[str, int, int]], total: int) -> list[str]:
    """A table of documents and characters by a value, the most documents first."""
    documents: Counter[str] = Counter()
    characters: Counter[str] = Counter()
    for value, some, size in counts:
        documents[value] += some
        characters[value] += size
    ranked = sorted(documents.items(), key=lambda item: (-item[1], item[0]))
    rows = [(value, f"{n:,}", _share(n, total), f"{characters[value]:,}") for value, n in ranked]
    return _table((what, "documents", "share", "characters"), rows)


def _definition(column: Column) -> str:
    if not column.measured:
        return f"{column.description} No step measured it: it is null."
    return f"{column.description} ({column.source})" if column.description else column.source


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines]

"""Writes the fixture: small sources of every kind, whose documents sit at the bounds of the work. All of it is made
here, by seeds and by hand, and is the same bytes each time."""

import json
from pathlib import Path
from typing import Any

import xxhash

from tests.golden.made.addresses import variants, write_lists
from tests.golden.made.archives import write_archives, write_lines, write_table, write_texts
from tests.golden.made.code import write_code
from tests.golden.made.copies import copies
from tests.golden.made.edges import edge_texts
from tests.golden.made.evaluation import write_evaluation
from tests.golden.made.languages import language_texts
from tests.golden.made.models import mill_texts, write_models
from tests.golden.made.personal import personal
from tests.golden.made.rights import write_rights
from tests.golden.made.words import SENTENCES, paragraph, prose, snippets


def write(folder: Path) -> Path:
    """The fixture in a folder, which is not there yet or has it."""
    done = folder / "done"
    if done.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    write_lists(folder / "lists")
    write_archives(folder / "crawl")
    write_texts(folder / "texts")
    write_code(folder / "code")
    write_models(folder / "models")
    write_evaluation(folder)
    write_rights(folder / "rights")
    edges = [
        {"name": name, "text": text, "url": f"https://edge.example/{at}"}
        for at, (name, text) in enumerate(edge_texts())
    ]
    write_lines(folder / "edges-0.jsonl", edges[::2])
    write_lines(folder / "edges-1.jsonl", edges[1::2])
    _write_copies(folder)
    write_lines(folder / "personal.jsonl", _personal())
    urls = [{"text": f"page {at}", "url": url} for at, url in enumerate(variants())]
    write_lines(folder / "addresses.jsonl", urls)
    write_lines(folder / "every.jsonl", [{"text": text} for text in language_texts()])
    write_lines(folder / "empty.jsonl", [])
    good = [
        {"text": prose(f"book {at}", 2, 3), "url": f"https://books.example/{at % 5}/{at}", "date": "2020-01-01"}
        for at in range(40)
    ]
    write_lines(folder / "books.jsonl", good)
    write_table(folder / "web.parquet", _web())
    write_lines(folder / "groups.jsonl", _groups())
    write_lines(folder / "mills.jsonl", mill_texts())
    (folder / "lists" / "web_hosts.txt").write_text("host1.example\nhttps://host0.example/20\n")
    _write_taken(folder / "lists" / "taken.txt")
    done.write_text("")
    return folder


def _personal() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"text": text, "title": text[:60], "url": f"https://p.example/{at}"} for at, text in enumerate(personal())
    ]
    found += [
        {"text": text, "title": None, "url": f"https://p.example/language/{at}"}
        for at, text in enumerate(snippets("languages"))
    ]
    return [*found, {"text": "none", "title": "jane@planted.org", "url": "https://p.example/?mail=jane@planted.org"}]


def _write_copies(folder: Path) -> None:
    rows = copies()
    for at in range(3):
        name = f"copies-{at}.jsonl"
        (folder / name).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows[at::3]), "utf-8")
    write_lines(folder / "earlier.jsonl", rows[::5])


def _web() -> list[dict[str, Any]]:
    """Documents with tied grades, of hosts of unlike sizes, in several languages, some of them poor."""
    found = []
    for at in range(160):
        poor = at % 4 == 3
        text = prose(f"web {at}", 1, 2) if not poor else " ".join(["buy cheap now click here"] * (at % 9 + 1))
        found.append(
            {
                "body": text + ("" if at % 10 else "\n\n" + "la " * 300),
                "address": f"https://host{at % (3 + at % 5)}.example/{at}",
                "day": f"2024-0{1 + at % 6}-15T00:00:00Z" if at % 7 else None,
                "grade": [0.0, 0.25, 0.25, 0.5, 0.75, 1.0, None, float(at % 3)][at % 8],
                "kind": ["essay", "shop", None, "É"][at % 4],
                "tags": [str(at % 3)] if at % 3 else None,
                "count": at % 11,
                "flag": [True, False, None][at % 3],
                "said": ["1.5", "+2", " 3 ", "x", None, "2024-03-04"][at % 6],
            }
        )
    return found


def _write_taken(path: Path) -> None:
    """A takedown list with ids as documents have them, a host and a folder."""
    rows, taken = copies(), []
    for shard in range(3):
        for line, row in list(enumerate(rows[shard::3]))[::13]:
            identity = "\n".join(("copies", f"copies-{shard}.jsonl", f"{line} None", row["id"]))
            taken.append(xxhash.xxh3_128_hexdigest(identity.encode()))
    path.write_text("\n".join(["# ids", *taken, "site3.example", "https://site4.example/1/*"]) + "\n", "utf-8")


def _groups() -> list[dict[str, Any]]:
    """Documents of 26 hosts and three languages, of which some have hardly a long text."""
    found = []
    for host in range(26):
        for at in range(9 + host):
            short = at % 10 < (9 if host in (3, 20) else 1 + host % 5)
            text = f"{host} {at} is short." if short else paragraph(f"group {host} {at}", 1)
            if host in (5, 6, 21) and not short:
                text = f"{SENTENCES[('de', 'fr', 'ru')[host % 3]]} {host} {at}"
            found.append({"text": text, "url": f"https://group{host}.example/{at}", "topic_of": str(host % 4)})
    return found

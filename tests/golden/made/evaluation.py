"""Benchmarks and documents that hold their items; texts that models are evaluated on; tasks."""

import json
from collections.abc import Iterator
from pathlib import Path

from tests.golden.made.archives import write_lines
from tests.golden.made.drawn import wordless
from tests.golden.made.words import fresh, paragraph, prose


def items() -> list[dict]:
    found = []
    for size in (3, 5, 6, 7, 8, 9, 10, 12, 13, 14, 20, 40):
        for answer in (4, 0, 1, 20):
            words = fresh(f"item {size} {answer}", size)
            passage = " ".join(fresh(f"passage {size}", 30)) if answer == 4 else None
            found.append(
                {
                    "q": " ".join(words),
                    "a": " ".join(fresh(f"answer {size} {answer}", answer)) or None,
                    "p": passage,
                    "n": f"i{size}-{answer}",
                }
            )
    found += [
        {"q": "12 345 67 8 9 10 11 12 13 14", "a": "x", "p": None, "n": "numbers"},
        {"q": "So it is. So it is. So it is. So it is so.", "a": None, "p": None, "n": "repeats"},
        {"q": "", "a": "nothing is asked", "p": None, "n": "empty"},
        {"q": "What is the name of the river at which the old mill stands?", "a": "The Weir", "p": "", "n": "plain"},
        {
            "q": "水車小屋は川のそばにあり農家の人々は毎朝大きな袋で穀物を運んできます",
            "a": "川",
            "p": None,
            "n": "japanese",
        },
        {"q": "the of and to", "a": None, "p": None, "n": "stops"},
    ]
    return found


def _holding() -> Iterator[str]:
    """Documents with items: as they are, across marks, with so many words changed, in parts, at the ends, several."""
    for at, item in enumerate(items()):
        words = item["q"].split()
        around = paragraph(f"around {at}", 1)
        answer = item["a"] or ""
        yield f"{around} {item['q']} {answer} {around}"
        yield f"{item['q'].upper()}?\n\n- {answer}\n" + (item["p"] or "")
        if len(words) < 7 or at % 2:
            continue
        for changed in (1, 2, 3, 4):
            other = [*words]
            for n in range(changed):
                other[(n * 5 + 2) % len(other)] = f"other{n}"
            yield f"{around} {' '.join(other)} {answer} {paragraph(f'tail {at}', 1)}"
        yield f"{around} {', '.join(words)}."
        for gap in (10, 11, 12, 13):
            if at % 8 == 0:
                half = len(words) // 2
                yield " ".join([*words[:half], *fresh(f"gap {at}", gap), *words[half:], answer])
        yield f"{item['p'] or ''} {around} {item['q']} {' '.join(fresh(f'far {at}', 21))} {answer}"
        yield " ".join(words[:-1])
        yield " ".join(words[1:])
        yield f"ab {item['q']}"
        yield "a" * 19 + f" {item['q']}"
    yield f"{items()[20]['q']} and {items()[30]['q']} and {items()[20]['q']}"


def write_evaluation(folder: Path) -> None:
    benchmarks = folder / "benchmarks"
    benchmarks.mkdir(parents=True, exist_ok=True)
    nested = [
        {"x": {"q": item["q"], "choices": {"text": [item["a"] or "none", "b", 12]}}} for item in items() if item["q"]
    ]
    write_lines(benchmarks / "nested.jsonl", nested[::3])
    kinds = {"asked": ("q",), "answered": ("q", "a"), "told": ("q", "a", "p"), "passages": ("q", "p")}
    for name, fields in kinds.items():
        rows = [item for item in items() if all(item[field] for field in fields)]
        write_lines(benchmarks / f"{name}.jsonl", [{field: item[field] for field in (*fields, "n")} for item in rows])
    write_lines(
        folder / "holding.jsonl",
        [{"text": text, "url": f"https://h.example/{at}"} for at, text in enumerate(_holding())],
    )
    _named(folder)
    _tasks(folder / "tasks")


def _named(folder: Path) -> None:
    """Texts of evaluation, and a source of which some are like them: at Jaccard .8 and beside it, contained, cut."""
    named, web = [], []
    for at in range(14):
        words = fresh(f"named {at}", 44 + at % 3)
        named.append({"text": " ".join(words)})
        changed = (0, 1, 4, 5, 6, 5, 7, 3, 9, 2, 5, 4, 8, 6)[at]
        web.append({"text": " ".join([*words[: len(words) - changed], *fresh(f"other {at}", changed)])})
        web.append(
            {"text": f"{paragraph(f'holds {at}', 2)} {' '.join(words[: 44 - at])} {paragraph(f'holds {at} b', 2)}"}
        )
    for size in (1, 4, 5, 8, 9, 10, 12, 13, 14):
        words = fresh(f"short {size}", size)
        named.append({"text": " ".join(words)})
        web += [{"text": " ".join(words)}, {"text": f"{paragraph(f'short {size}', 2)} {' '.join(words)}."}]
    named += [{"text": ""}, {"text": " ".join(fresh("named 3", 44 + 0))}, {"text": "..."}]
    web += [
        {"text": prose(f"evaluated {at}", 1, 2 + at % 3), "url": f"https://e{at % 6}.example/{at}"} for at in range(150)
    ]
    web += [{"text": text} for text in wordless() * 2]
    write_lines(folder / "named.jsonl", named)
    for at, row in enumerate(web):
        row.setdefault("url", f"https://e{at % 11}.example/x/{at}")
    write_lines(folder / "evaluated.jsonl", web)
    (folder / "lists" / "held.txt").write_text("e1.example\nhttps://e2.example/2\n")


def _tasks(folder: Path) -> None:
    """A task of choices and a cloze, of whose examples some stand in documents."""
    folder.mkdir(parents=True, exist_ok=True)
    held = [
        row["text"]
        for row in map(json.loads, (folder.parent / "evaluated.jsonl").read_text(encoding="utf-8").splitlines())
    ]
    choices, cloze = [], []
    for at in range(8):
        context = " ".join(held[30 + at].split()[: 9 + at]) if at % 2 else " ".join(fresh(f"task {at}", 12))
        choices.append(
            {"query": context, "choices": ["grain", "stone", " ".join(fresh(f"choice {at}", 3))], "gold": at % 3}
        )
        words = held[60 + at].split()[: 12 + at] if at % 3 else fresh(f"cloze {at}", 14)
        cloze.append({"context": " ".join(words[:-1]), "continuation": words[-1]})
    write_lines(folder / "choose.jsonl", choices)
    write_lines(folder / "write.jsonl", cloze)
    (folder / "more").mkdir(exist_ok=True)
    write_lines(
        folder / "more" / "last_words.jsonl",
        [{"context": "The old mill stands at the", "target": "river"}, {"context": "so it", "target": " is"}],
    )

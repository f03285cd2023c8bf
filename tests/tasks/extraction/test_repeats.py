"""What a page repeats, beside a comparison of sets of words, and pages with planted copies."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.tasks.extraction.blocks import scan
from gristmill.tasks.extraction.classifier import main_text
from gristmill.tasks.extraction.rendering.left_out import EACH, MIN_REPEAT_WORDS, SHARE, WINDOW, repeats

# words of one letter, so that windows recur by chance, and a long one, so that runs of every length do
WORDS = st.sampled_from(["a", "B", "ß", "7", "mill stone grain river wheel flour sack baker"])
BLOCKS = st.lists(st.lists(WORDS, min_size=1, max_size=14).map(" ".join), min_size=1, max_size=5)
PROSE = [
    " ".join(f"sentence{i} of the article{i} says what mill{j} grinds{i} on day{i * j}," for j in range(3))
    for i in range(4)
]
LAST = "The grain of the valley is ground here until the river freezes, and the flour is sold in the village below."
FRAME = "<html><body><main><article><h1>The mill by the river</h1>{}</article></main></body></html>"


def by_sets(texts: list[str], kept: list[bool], whole: list[bool]) -> list[bool]:
    seen: set[tuple[str, ...]] = set()
    runs: list[list[tuple[int, int]]] = [[]]
    above: list[str] = []
    for k, text in enumerate(texts):
        if not kept[k]:
            continue
        if whole[k]:
            runs.append([])
            continue
        words = re.findall(r"[a-z0-9\u0080-\uffff]+", text.replace("B", "b"))
        windows = [tuple(words[i : i + WINDOW]) for i in range(max(1, len(words) - WINDOW + 1))]
        if sum(window in seen for window in windows) >= SHARE * len(windows):
            runs[-1].append((k, len(words)))
        else:
            runs.append([])
        above += words
        seen.update(windows)
        seen.update(tuple(above[i : i + WINDOW]) for i in range(len(above) - WINDOW + 1))
    least = [max(MIN_REPEAT_WORDS, EACH * len(run)) for run in runs]
    dropped = {
        k for run, words in zip(runs, least, strict=True) if sum(count for _, count in run) >= words for k, _ in run
    }
    return [k in dropped for k in range(len(texts))]


@pytest.mark.extended
@settings(max_examples=200)
@given(BLOCKS, st.lists(st.integers(0, 4), max_size=12), st.data())
def test_repeats_are_those_of_sets_of_words(texts, order, data):
    texts = texts + [texts[i % len(texts)] for i in order]
    flags = st.lists(st.sampled_from([True, True, True, False]), min_size=len(texts), max_size=len(texts))
    kept, whole = data.draw(flags), [not flag for flag in data.draw(flags)]
    page = scan(np.frombuffer("".join(f"<p>{text}</p>" for text in texts).encode(), np.uint8))
    found = repeats(page, np.array(kept), np.array(whole))
    assert found.tolist() == by_sets(texts, kept, whole)


def test_an_article_that_stands_twice_is_kept_once():
    paragraphs = "".join(f"<p>{text}</p>" for text in PROSE)
    page = FRAME.format(f"<div class=desktop>{paragraphs}</div><div class=phone>{paragraphs}</div><p>{LAST}</p>")
    once = FRAME.format(f"<div class=desktop>{paragraphs}</div><p>{LAST}</p>")
    assert all(main_text(page).count(text) == 1 for text in PROSE)
    assert main_text(page).split() == main_text(once).split()


def test_a_copy_in_one_block_is_a_copy():
    page = FRAME.format("".join(f"<p>{text}</p>" for text in PROSE) + f"<div>{'<br>'.join(PROSE)}</div>")
    assert all(main_text(page).count(text) == 1 for text in PROSE)


def test_code_tables_and_choruses_are_kept_as_often_as_they_stand():
    code = "".join(f"<pre>{'grind(sack) '.join(map(str, range(40)))}</pre><p>{text}</p>" for text in PROSE[:2])
    cells = "".join(f"<tr>{''.join(f'<td>{i} kg of rye</td>' for i in range(j, j + 5))}</tr>" for j in range(5))
    tables = "".join(f"<table>{cells}</table><p>{text}</p>" for text in PROSE[2:])
    page = main_text(FRAME.format(code + tables))
    assert page.count("17grind(sack)") == 2
    assert page.count("4 kg of rye") == 10
    chorus = "".join(
        f"<p>turn wheel turn wheel {word} the river is high</p>"
        for word in "one two three four five six seven eight nine".split()
    )
    song = main_text(FRAME.format(f"<p>{PROSE[0]}</p>{chorus}<p>{PROSE[1]}</p>{chorus}<p>{PROSE[2]}</p>"))
    assert song.count("the river is high") == 18

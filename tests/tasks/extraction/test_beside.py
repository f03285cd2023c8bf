"""What stands beside the main text, by a walk over the tree that a page was written from, and on pages with planted
parts."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.tasks.extraction.blocks import scan
from gristmill.tasks.extraction.classifier import main_text
from gristmill.tasks.extraction.rendering.left_out import LINKED, MIN_CONTAINER_SHARE, beside

TAGS = ("nav", "footer", "dialog", "aside", "div class=sidebar", "div", "blockquote", "section")
PROSE = st.integers(1, 6).map(lambda count: " ".join(["word"] * count))
LEAVES = st.tuples(PROSE, st.booleans(), st.sampled_from([True, True, False]))
TREES = st.recursive(LEAVES, lambda inner: st.tuples(st.sampled_from(TAGS), st.lists(inner, min_size=1, max_size=4)))


def leaves(tree, above=()):
    """Of each leaf: its text, whether it is a link, whether it is kept, and the elements around it, by identity."""
    if isinstance(tree[1], list):
        for child in tree[1]:
            yield from leaves(child, (*above, (tree[0], id(tree))))
    else:
        yield (*tree, above)


def written(tree) -> str:
    if isinstance(tree[1], list):
        return f"<{tree[0]}>{''.join(map(written, tree[1]))}</{tree[0].split()[0]}>"
    return f"<p>{f'<a href=x>{tree[0]}</a>' if tree[1] else tree[0]}</p>"


def by_walk(found: list) -> list[bool]:
    total = sum(len(text.split()) for text, _, kept, _ in found if kept)

    def part(above):
        outside = above[: next((i for i, each in enumerate(above) if each[0] == "blockquote"), len(above))]
        return next((each for each in outside if each[0] in ("nav", "footer", "dialog")), None)

    def side(above):
        return next((each for each in reversed(above) if each[0] in ("aside", "div class=sidebar")), None)

    def few(container, of):
        return (
            sum(len(text.split()) for text, _, kept, above in found if kept and of(above) == container)
            < MIN_CONTAINER_SHARE * total
        )

    def links(container):
        inside = [(len(text), link) for text, link, _, above in found if side(above) == container]
        # white space between words counts for the size alone
        linked = sum(len(text.replace(" ", "")) for text, link, _, above in found if link and side(above) == container)
        return linked >= LINKED * sum(size for size, _ in inside)

    return [
        kept
        and (
            (part(above) is not None and few(part(above), part))
            or (side(above) is not None and few(side(above), side) and links(side(above)))
        )
        for _, _, kept, above in found
    ]


@settings(max_examples=300)
@given(st.lists(TREES, min_size=1, max_size=6))
def test_parts_are_those_of_a_walk_over_the_tree(trees):
    found = [leaf for tree in trees for leaf in leaves(tree)]
    page = scan(np.frombuffer("".join(map(written, trees)).encode(), np.uint8))
    kept = np.array([leaf[2] for leaf in found])
    words = np.array([len(leaf[0].split()) for leaf in found], np.float32)
    assert len(page.blocks.begin) == len(found)
    assert beside(page, kept, words).tolist() == by_walk(found)


STORY = "".join(
    f"<p>The mill of farm {i} grinds grain of the valley, and the miller sells its flour in the village, he says.</p>"
    for i in range(8)
)
MORE = "The baker of the town writes about his bread, which he bakes of rye, wheat and a little salt, every morning."


def test_a_part_of_the_page_is_left_out_and_a_quotation_is_not():
    page = "<html><body><main><article><h1>The mill</h1>{}" + STORY + "</article></main></body></html>"
    for part in ("<dialog><p>{}</p></dialog>", "<footer><p>{}</p></footer>", "<nav><p>{}</p></nav>"):
        assert MORE not in main_text(page.format(part.format(MORE)))
    assert MORE in main_text(page.format(f"<blockquote><p>Bread.</p><footer>{MORE}</footer></blockquote>"))


def test_a_page_whose_text_is_in_such_a_part_is_read():
    for part in ("footer", "nav", "aside"):
        assert "farm 7 grinds" in main_text(f"<html><body><{part}><h1>The mill</h1>{STORY}</{part}></body></html>")

"""What a scan of a page gives: flat tables of its blocks, elements and tags."""

from typing import NamedTuple

import numpy as np

from gristmill.tasks.extraction.vocabulary import ALIASES, ELEMENTS

TEXT, HEADING, PREFORMATTED, CELL = range(4)

_KINDS = {"heading": HEADING, "pre": PREFORMATTED, "td": CELL, "th": CELL}
# of each element, what the text in it is
KIND = np.array([_KINDS.get(ALIASES.get(name, name), TEXT) for name in ELEMENTS], np.int64)

# The distance to an element that a block is not in, see `Blocks.above`.
NONE = np.int8(100)

# In `Tags.element`.
ENDS, COMMENT = -1, 1000


class Blocks(NamedTuple):
    """One entry for each block.

    begin, end: of its text. kind: TEXT, HEADING, PREFORMATTED or CELL. node: its innermost element. bullet: how many
    lists it is in if it begins a list item, else 0; ordinal: the item's number in an `<ol>`. row, cell: numbers of the
    table row and cell around it, counted through the page, 0 outside of tables. bits: what is around it, see
    `vocabulary` (WORDS and AROUND). above: int8, shape (blocks, 64): for each bit how many elements up the nearest one
    is that has it, NONE if there is none. links: links that begin in it; linked: code points of its text inside of
    links, white space aside.
    """

    begin: np.ndarray
    end: np.ndarray
    kind: np.ndarray
    node: np.ndarray
    bullet: np.ndarray
    ordinal: np.ndarray
    row: np.ndarray
    cell: np.ndarray
    bits: np.ndarray
    above: np.ndarray
    links: np.ndarray
    linked: np.ndarray
    after: np.ndarray
    before: np.ndarray
    marked: np.ndarray


class Nodes(NamedTuple):
    """One entry for each element that was on the stack; 0 is the page itself.

    path: a hash of the element's name and class words and of those of its ancestors. first: the number of its start
    tag; last: of the tag that ended it, which need not be its own. Of the page itself -1 and the number of tags.
    """

    parent: np.ndarray
    tag: np.ndarray
    bits: np.ndarray
    path: np.ndarray
    first: np.ndarray
    last: np.ndarray


class Tags(NamedTuple):
    """One entry for each tag and comment of the source, in order: what lies between two of them is text.

    begin, end: int64, in the page's bytes; of raw text (`vocabulary.RAW`) the end is that of its end tag. element:
    int16, the element (see `vocabulary`) of a start tag, ENDS less it of an end tag, COMMENT for all that is no tag.
    """

    begin: np.ndarray
    end: np.ndarray
    element: np.ndarray


class Page(NamedTuple):
    """What a scan gives.

    text: uint8, the text of all blocks, white space collapsed (kept in PREFORMATTED ones), entities as they stand,
    except that `&nbsp;` is a space. blocks, nodes, tags: cut to their number. title: (begin, end) in the page's bytes
    of what the first `<title>` holds, (0, 0) if there is none. depth: the number of elements that were open at once, as
    a parser would count that closes nothing by itself but what the standard closes. body: where the first text or
    element of the body begins, in the page's bytes.
    """

    text: np.ndarray
    blocks: Blocks
    nodes: Nodes
    tags: Tags
    title: tuple[int, int]
    depth: int
    body: int

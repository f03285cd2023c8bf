"""A page's text as a flat table of blocks: one pass over its bytes, in linear time whatever they are.

A block is inline text between two boundaries of block-level elements (or two `<br>` in a row). The scan follows the
HTML standard's tokenizer and its rules for implied end tags; it keeps a stack of open elements, not a tree, and it
moves no element that stands where it should not (no foster parenting, no adoption agency): the text stays in the order
of the source.
"""

import numpy as np

from gristmill.tasks.extraction.markup import (
    MATH_TYPES,
    SPACES,
    after_bracket,
    comment_end,
    count_tags,
    is_letter,
    matches_in,
    next_byte,
    raw_text_end,
    read_tag,
    text_byte,
    text_of_image,
)
from gristmill.tasks.extraction.nesting import breaks_out, close, ended_height, implied_height, is_heading
from gristmill.tasks.extraction.vocabulary import (
    BITS,
    BLOCK,
    COMMENT,
    CUSTOM,
    ELEMENTS,
    ENDS,
    FNV,
    HIDDEN,
    INLINE,
    KIND,
    MARKED,
    NONE,
    OTHER,
    PREFORMATTED,
    PRIME,
    PROPERTIES,
    RAW,
    SKIP,
    TEXT,
    VOID,
    WHERE,
    Blocks,
    E,
    Nodes,
    Page,
    Tags,
)
from gristmill.tasks.kernels.buffers import byte, trailing_zeros
from gristmill.tasks.kernels.compiled import nb

# Elements deeper than this are not put on the stack (browsers stop at 512 too): their text counts for the last one.
DEPTH = 512

_P, _LI, _UL, _OL, _MENU, _DIR = E["p"], E["li"], E["ul"], E["ol"], E["menu"], E["dir"]
_TR, _TD, _TH, _BR, _TITLE, _LINK = E["tr"], E["td"], E["th"], E["br"], E["title"], E["a"]
_SVG, _FOREIGN, _SCRIPT, _IMG = E["svg"], E["foreignobject"], E["script"], E["img"]
_XMP, _PLAINTEXT = E["xmp"], E["plaintext"]


@nb.njit(nogil=True, cache=True)
def scan(data: np.ndarray) -> Page:
    """Blocks of a page of UTF-8 bytes (uint8); see `Page`.

    Holds the text once more, and about 120 bytes for each block, 50 for each tag and 30 for each that opens an element.
    """
    size = len(data)
    most = count_tags(data) + 2
    # A code point becomes at most itself and one white space before it; that one was in the source, or is a `<br>`.
    text = np.empty(size + most, np.uint8)
    o = 0
    b_begin, b_end = np.empty(most, np.int64), np.empty(most, np.int64)
    b_kind, b_bullet = np.empty(most, np.uint8), np.empty(most, np.uint8)
    b_node, b_row, b_cell = np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.int32)
    b_bits, b_above = np.empty(most, np.uint64), np.empty((most, BITS), np.int8)
    b_links, b_linked = np.empty(most, np.int32), np.empty(most, np.int64)
    n_parent, n_tag = np.empty(most, np.int32), np.empty(most, np.uint8)
    n_bits, n_path = np.empty(most, np.uint64), np.empty(most, np.uint64)
    n_first, n_last = np.full(most, -1, np.int32), np.full(most, -1, np.int32)
    t_begin, t_end, t_element = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int16)
    b_after, b_before, b_marked = np.empty(most, np.int32), np.empty(most, np.int32), np.zeros(most, np.bool_)
    tags = 0
    n_parent[0], n_tag[0], n_bits[0], n_path[0] = -1, OTHER, np.uint64(0), FNV
    nodes = 1
    blocks = 0

    # The stack. Entry 0 is the page.
    s_tag, s_node = np.zeros(DEPTH, np.int64), np.zeros(DEPTH, np.int64)
    s_hash, s_bits = np.zeros(DEPTH, np.uint64), np.zeros(DEPTH, np.uint64)
    s_kind, s_lists = np.zeros(DEPTH, np.int64), np.zeros(DEPTH, np.int64)
    s_row, s_cell = np.zeros(DEPTH, np.int64), np.zeros(DEPTH, np.int64)
    s_skip = np.zeros(DEPTH, np.bool_)
    s_above = np.full((DEPTH, BITS), NONE, np.int8)
    open_tags = np.zeros(len(ELEMENTS), np.int64)
    top = 0
    beyond = 0  # open elements that found no place on the stack
    inline = 0  # open elements that are never on it
    depth = 0
    rows = cells = 0
    link = -1  # height of the stack where the open link began, -1 without one
    item = False  # a list item has begun and has no text yet
    title_begin = title_end = 0
    begin = resume = 0

    # The open block.
    start = 0  # in `text`
    space = False  # white space waits to be written
    breaks = 0  # <br> that wait to be written
    lead = 0  # white space before the first word of a preformatted line
    links = linked = 0
    at = 0  # height of the stack where its text began
    after = -1  # the tag that its source begins behind
    marked = False
    literal = -1  # where text ends that is read as it stands: raw text, formulas, those of images; -1 outside of it

    i = 0
    while i <= size:
        ends = i == size
        closing = False
        tag = np.int64(OTHER)
        h = classes = FNV
        bits = np.uint64(0)
        hides = target = self_closed = False
        shown = True
        if literal >= 0 and i >= literal:
            i = resume
            literal = -1
            continue
        if not ends:
            b = byte(data, i)
            if b != 60 or literal >= 0:
                # Text up to the next `<`, or to the end of what is read as it stands.
                if s_skip[top]:
                    i = next_byte(data, i, 60)
                    continue
                pre = s_kind[top] == PREFORMATTED
                while i < size and (byte(data, i) != 60 if literal < 0 else i < literal):
                    b, following = byte(data, i), i + 1
                    if b == 38 or b == 0xC2:
                        b, following = text_byte(data, i)
                    if b == 0:
                        i = following
                        continue
                    if SPACES[b]:
                        if pre and o > start:
                            if b == 13:
                                b = np.uint8(10)
                                if following < size and byte(data, following) == 10:
                                    following += 1
                            text[o] = b
                            o += 1
                        elif pre:
                            lead = lead + 1 if b == 32 or b == 9 else 0
                        space = True
                        i = following
                        continue
                    if o == start:
                        at = top
                        space = False
                        breaks = 0
                        if pre:
                            for _ in range(lead):
                                text[o] = 32
                                o += 1
                    elif (breaks or space) and not pre:
                        text[o] = 10 if breaks else 32
                        o += 1
                    space = False
                    breaks = 0
                    text[o] = b
                    o += 1
                    linked += link >= 0 and b & 0xC0 != 0x80
                    i = following
                continue
            # A tag, a comment or a lone `<`.
            begin = i
            i += 1
            b = byte(data, i) if i < size else np.uint8(0)
            if b == 33 or b == 63 or (b == 47 and i + 1 < size and not is_letter(byte(data, i + 1))):
                i = comment_end(data, i)
                t_begin[tags], t_end[tags], t_element[tags] = begin, i, COMMENT
                tags += 1
                continue
            if b == 47 and i + 1 < size:
                closing = True
                i += 1
                b = byte(data, i)
            if not is_letter(b):
                if not s_skip[top]:  # text: `<` and nothing more
                    if o == start:
                        at = top
                    elif (breaks or space) and s_kind[top] != PREFORMATTED:
                        text[o] = 10 if breaks else 32
                        o += 1
                    space = False
                    breaks = 0
                    text[o] = 60
                    o += 1
                    linked += link >= 0
                i = begin + 1
                continue
            tag, h, i, whole, self_closed, bits, classes, hides, shown, target = read_tag(data, i, closing)
            t_begin[tags], t_end[tags], t_element[tags] = begin, i, ENDS - tag if closing else tag
            tags += 1
            if not whole:
                t_element[tags - 1] = COMMENT
                continue  # the standard drops a tag that the page ends in
        properties = PROPERTIES[tag]

        if not closing and open_tags[_SVG] and not open_tags[_FOREIGN] and breaks_out(tag):
            height = top
            while s_tag[height] != _SVG:
                height -= 1
            top = close(height, s_tag, open_tags, top, s_node, n_last, tags - 1)
        foreign = open_tags[_SVG] > 0 and not open_tags[_FOREIGN]
        marked |= (properties & MARKED != 0 or not shown) and not s_skip[top]

        # Does the tag end the open block?
        flush = ends
        if tag == _BR:
            if not s_skip[top] and o > start:
                if s_kind[top] == PREFORMATTED:
                    text[o] = 10
                    o += 1
                else:
                    breaks += 1
                    flush = breaks > 1
        elif not ends:
            flush = properties & BLOCK != 0
        if flush:
            space = False
            breaks = 0
            while o > start and SPACES[text[o - 1]]:
                o -= 1
            if o > start:
                b_begin[blocks], b_end[blocks] = start, o
                b_kind[blocks] = s_kind[at]
                b_node[blocks] = s_node[at]
                b_bullet[blocks] = min(s_lists[at], 255) if item else 0
                item = False
                b_row[blocks], b_cell[blocks] = s_row[at], s_cell[at]
                b_bits[blocks] = s_bits[at]
                for k in range(BITS):
                    b_above[blocks, k] = s_above[at, k]
                b_links[blocks], b_linked[blocks] = links, min(linked, o - start)
                b_after[blocks], b_before[blocks], b_marked[blocks] = after, tags if ends else tags - 1, marked
                blocks += 1
            start = o
            links = linked = lead = 0
            after = tags - 1
            marked = False
        if ends:
            break
        if tag == _LINK:
            link = -1
            if not closing and target:
                link = top
                links += 1
        if properties & INLINE:
            if tag > CUSTOM:
                inline = max(0, inline - 1) if closing else inline + 1
                depth = max(depth, top + beyond + inline)
            continue
        if properties & VOID:
            if tag == _IMG and not s_skip[top]:
                value, literal = text_of_image(data, begin, i)
                if literal < 0:
                    continue
                marked = True
                resume = i
                i = value
            continue

        if closing:
            if tag == _P and not open_tags[_P]:
                continue
            if beyond:
                beyond -= 1
                continue
            if not open_tags[tag] and not is_heading(tag):
                continue
            height = ended_height(tag, h, s_tag, s_hash, top)
            top = close(height, s_tag, open_tags, top, s_node, n_last, tags - 1)
            if link > top:
                link = -1
            continue

        # Raw text: skipped, with its end tag.
        if properties & RAW and not (self_closed and foreign):
            content_end = raw_text_end(data, i, h)
            if tag == _TITLE and not title_end and not s_skip[top]:
                title_begin, title_end = i, content_end
            resume = after_bracket(data, content_end)
            t_end[tags - 1] = resume
            if tag == _SCRIPT and not s_skip[top] and matches_in(data, begin, i, MATH_TYPES):
                marked = True
                literal = content_end
            else:
                i = resume
            continue
        if self_closed and (foreign or tag == _SVG):
            continue  # in SVG `<path/>` is a whole element

        height = implied_height(tag, s_tag, open_tags, top)
        top = close(height, s_tag, open_tags, top, s_node, n_last, tags - 1)
        if link > top:
            link = -1

        if (tag == _XMP or tag == _PLAINTEXT) and not foreign:
            resume = raw_text_end(data, i, h) if tag == _XMP else size
            if s_skip[top]:
                i = resume
            else:
                literal = resume

        if top + 1 == DEPTH:
            beyond += 1
            depth = max(depth, top + beyond + inline)
            continue
        below = top
        top += 1
        depth = max(depth, top + beyond + inline)
        bits |= WHERE[tag]
        if hides:
            bits |= HIDDEN
        s_tag[top], s_hash[top] = tag, h
        open_tags[tag] += 1
        s_bits[top] = s_bits[below] | bits
        s_kind[top] = s_kind[below]
        if KIND[tag] != TEXT:
            s_kind[top] = KIND[tag]
        s_lists[top], s_row[top], s_cell[top] = s_lists[below], s_row[below], s_cell[below]
        s_skip[top] = s_skip[below] or properties & SKIP != 0
        if tag == _LI:
            item = True
            s_lists[top] = max(1, s_lists[top])
        elif tag == _UL or tag == _OL or tag == _MENU or tag == _DIR:
            s_lists[top] += 1
        elif tag == _TR:
            rows += 1
            s_row[top] = rows
        elif tag == _TD or tag == _TH:
            cells += 1
            s_cell[top] = cells
        for k in range(BITS):
            s_above[top, k] = s_above[below, k] + np.int8(s_above[below, k] < NONE - 1)
        rest = bits
        while rest:
            s_above[top, trailing_zeros(rest)] = 0
            rest &= rest - np.uint64(1)
        n_parent[nodes], n_tag[nodes], n_bits[nodes] = s_node[below], tag, bits
        n_path[nodes] = (n_path[s_node[below]] ^ h) * PRIME ^ classes
        n_first[nodes] = tags - 1
        s_node[top] = nodes
        nodes += 1

    close(0, s_tag, open_tags, top, s_node, n_last, tags)
    return Page(
        text[:o],
        Blocks(
            b_begin[:blocks],
            b_end[:blocks],
            b_kind[:blocks],
            b_node[:blocks],
            b_bullet[:blocks],
            b_row[:blocks],
            b_cell[:blocks],
            b_bits[:blocks],
            b_above[:blocks],
            b_links[:blocks],
            b_linked[:blocks],
            b_after[:blocks],
            b_before[:blocks],
            b_marked[:blocks],
        ),
        Nodes(n_parent[:nodes], n_tag[:nodes], n_bits[:nodes], n_path[:nodes], n_first[:nodes], n_last[:nodes]),
        Tags(t_begin[:tags], t_end[:tags], t_element[:tags]),
        (title_begin, title_end),
        depth,
    )

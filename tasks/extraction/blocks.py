"""A page's text as a flat table of blocks: one pass over its bytes, in linear time whatever they are.

A block is a run of inline text between two boundaries of block-level elements (or two `<br>` in a row). The scan
follows the HTML standard's tokenizer and its rules for implied end tags; it keeps a stack of open elements, not a
tree, and it moves no element that stands where it should not (no foster parenting, no adoption agency): the text
stays in the order of the source.
"""

from collections import namedtuple

import numba as nb
import numpy as np

from tasks.extraction.vocabulary import (
    ALIASES,
    BITS,
    BLOCK,
    CLOSES_P,
    CUSTOM,
    EDGE,
    ELEMENTS,
    HIDDEN,
    INLINE,
    OTHER,
    PROPERTIES,
    RAW,
    SCOPE,
    SKIP,
    TAG_KEYS,
    TAG_VALUES,
    VOID,
    WHERE,
    WORDS,
    E,
    automaton,
    name_hash,
)
from tasks.kernels.buffers import byte

# Elements deeper than this are not put on the stack (browsers stop at 512 too): their text counts for the last one.
DEPTH = 512
# How far up an end tag looks for its start tag. With a limit, `</x>` after many open elements stays linear.
REACH = 128

TEXT, HEADING, PREFORMATTED, CELL = range(4)

Page = namedtuple("Page", "text blocks nodes title depth body")
Page.__doc__ = """What a scan gives.

text: uint8, the text of all blocks, white space collapsed (kept in PREFORMATTED ones), entities as they stand, except
that `&nbsp;` is a space. blocks, nodes: `Blocks` and `Nodes`, cut to their number. title: (begin, end) in the page's
bytes of what the first `<title>` holds, (0, 0) if there is none. depth: the number of elements that were open at
once, as a parser would count that closes nothing by itself but what the standard closes. body: where the first text
or element of the body begins, in the page's bytes.
"""

Blocks = namedtuple("Blocks", "begin end kind node bullet ordinal row cell bits above links linked")
Blocks.__doc__ = """One entry for each block.

begin, end: of its text. kind: TEXT, HEADING, PREFORMATTED or CELL. node: the element that it lies in. bullet: how many
lists it lies in if it begins a list item, else 0; ordinal: the item's number in an `<ol>`. row, cell: running numbers
of the table row and cell around it, 0 outside of tables. bits: what lies around it, see `vocabulary` (WORDS and
AROUND). above: int8, shape (blocks, 64): for each bit how many elements up its nearest bearer is, NONE if there is
none. links: links that begin in it; linked: code points of its text inside of links, white space aside.
"""

Nodes = namedtuple("Nodes", "parent tag bits path")
Nodes.__doc__ = """One entry for each element that was on the stack; 0 is the page itself.

path: a hash of the element's name and class words and of those of its ancestors.
"""

NONE = np.int8(100)

_CLASSES, _CLASS_BITS = automaton(WORDS, False)


def _symbols() -> np.ndarray:
    table = np.full(256, EDGE, np.int64)
    for letter in range(26):
        table[65 + letter] = table[97 + letter] = letter
    return table


SYMBOLS = _symbols()
_SPACES = np.zeros(256, np.bool_)
_SPACES[list(b" \t\n\r\f")] = True
_KIND = np.zeros(len(ELEMENTS), np.int64)
for _i, _name in enumerate(ELEMENTS):
    _alias = ALIASES.get(_name, _name)
    _KIND[_i] = {"heading": HEADING, "pre": PREFORMATTED, "td": CELL, "th": CELL}.get(_alias, TEXT)

_P, _LI, _DT, _DD, _UL, _OL, _DL = E["p"], E["li"], E["dt"], E["dd"], E["ul"], E["ol"], E["dl"]
_MENU, _DIR, _TR, _TD, _TH, _TABLE = E["menu"], E["dir"], E["tr"], E["td"], E["th"], E["table"]
_TBODY, _THEAD, _TFOOT, _CAPTION = E["tbody"], E["thead"], E["tfoot"], E["caption"]
_H1, _H6, _BR, _TITLE, _BODY, _OPTION = E["h1"], E["h6"], E["br"], E["title"], E["body"], E["option"]
_OPTGROUP, _BUTTON, _SPAN, _LINK, _HEAD, _HTML = E["optgroup"], E["button"], E["span"], E["a"], E["head"], E["html"]
_SVG, _NOSCRIPT, _SELECT = E["svg"], E["noscript"], E["select"]

# What an element may declare of itself, by the hash of the attribute's name.
FNV = np.uint64(0xCBF29CE484222325)
PRIME = np.uint64(0x100000001B3)


def _attribute(name: str) -> np.uint64:
    return np.uint64(name_hash(name))


_A_CLASS, _A_ID, _A_ROLE, _A_ITEMPROP = (_attribute(n) for n in ("class", "id", "role", "itemprop"))
_A_STYLE, _A_HIDDEN, _A_ARIA, _A_HREF = (_attribute(n) for n in ("style", "hidden", "aria-hidden", "href"))


@nb.njit(nogil=True, cache=True, inline="always")
def _is_letter(b):
    return 97 <= (b | 32) <= 122


@nb.njit(nogil=True, cache=True)
def _matches(data, i, text):
    """Whether `text` (lower case) stands at `i`, in any case."""
    if i + len(text) > len(data):
        return False
    for k in range(len(text)):
        b = byte(data, i + k)
        if b != text[k] and not (_is_letter(b) and b | 32 == text[k]):
            return False
    return True


_NBSP = np.frombuffer(b"&nbsp;", np.uint8)
_NBSP_10 = np.frombuffer(b"&#160;", np.uint8)
_NBSP_16 = np.frombuffer(b"&#xa0;", np.uint8)
_NONE_SHOWN = np.frombuffer(b"display:none", np.uint8)
_NOT_VISIBLE = np.frombuffer(b"visibility:hidden", np.uint8)


@nb.njit(nogil=True, cache=True)
def _hides(data, begin, end):
    """Whether a style attribute hides its element: `display:none` or `visibility:hidden`, spaces passed over."""
    for word in (_NONE_SHOWN, _NOT_VISIBLE):
        k = 0
        for i in range(begin, end):
            b = byte(data, i)
            if b == 32:
                continue
            b = b | 32 if _is_letter(b) else b
            k = k + 1 if b == word[k] else (1 if b == word[0] else 0)
            if k == len(word):
                return True
    return False


@nb.njit(nogil=True, cache=True)
def _words(data, begin, end):
    """(bits, hash) of the words in an attribute's value; digits count for neither."""
    bits = np.uint64(0)
    h = FNV
    state = np.int64(_CLASSES[0, EDGE])
    small = False
    for i in range(begin, end):
        b = byte(data, i)
        symbol = SYMBOLS[b]
        if symbol != EDGE:
            if small and b < 97:
                state = np.int64(_CLASSES[state, EDGE])
                bits |= _CLASS_BITS[state]
            small = b >= 97
            h = (h ^ np.uint64(b)) * PRIME
        else:
            small = False
        state = np.int64(_CLASSES[state, symbol])
        bits |= _CLASS_BITS[state]
    bits |= _CLASS_BITS[np.int64(_CLASSES[state, EDGE])]
    return bits, h


@nb.njit(nogil=True, cache=True)
def _element(h):
    slot = np.int64(h & np.uint64(511))
    while TAG_KEYS[slot]:
        if TAG_KEYS[slot] == h:
            return TAG_VALUES[slot]
        slot = (slot + 1) & 511
    return OTHER


@nb.njit(nogil=True, cache=True)
def _count_tags(data):
    n = 0
    for i in range(len(data) - 1):
        if byte(data, i) == 60:
            b = byte(data, i + 1)
            n += b == 47 or _is_letter(b)
    return n


@nb.njit(nogil=True, cache=True)
def scan(data):
    """Blocks of a page of UTF-8 bytes; see `Page`.

    Holds the text once more, and about 110 bytes for each block and 30 for each tag that opens an element.
    """
    size = len(data)
    most = _count_tags(data) + 2
    # A code point becomes at most itself and one white space before it; that one was in the source, or is a `<br>`.
    text = np.empty(size + most, np.uint8)
    o = 0
    b_begin, b_end = np.empty(most, np.int64), np.empty(most, np.int64)
    b_kind, b_bullet = np.empty(most, np.uint8), np.empty(most, np.uint8)
    b_node, b_row, b_cell = np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.int32)
    b_bits, b_above = np.empty(most, np.uint64), np.empty((most, BITS), np.int8)
    b_ordinal = np.empty(most, np.int32)
    b_links, b_linked = np.empty(most, np.int32), np.empty(most, np.int64)
    n_parent, n_tag = np.empty(most, np.int32), np.empty(most, np.uint8)
    n_bits, n_path = np.empty(most, np.uint64), np.empty(most, np.uint64)
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
    ordinal = 0  # its number
    s_items = np.zeros(DEPTH, np.int64)  # items of the list so far, -1 in a list without numbers
    title_begin = title_end = 0
    body = 0

    # The open block.
    start = 0  # in `text`
    space = False  # white space waits to be written
    breaks = 0  # <br> that wait to be written
    lead = 0  # white space before the first word of a preformatted line
    links = linked = 0
    at = 0  # height of the stack where its text began

    i = 0
    while i <= size:
        ends = i == size
        closing = False
        tag = np.int64(OTHER)
        h = FNV
        bits = np.uint64(0)
        names = FNV
        hides = False
        target = False
        self_closed = False
        if not ends:
            b = byte(data, i)
            if b != 60:
                # Text up to the next `<`.
                if s_skip[top]:
                    while i < size and byte(data, i) != 60:
                        i += 1
                    continue
                pre = s_kind[top] == PREFORMATTED
                while i < size:
                    b = byte(data, i)
                    if b == 60:
                        break
                    if b == 38 and (
                        _matches(data, i, _NBSP) or _matches(data, i, _NBSP_10) or _matches(data, i, _NBSP_16)
                    ):
                        b = np.uint8(32)
                        i += 5
                    elif b == 0xC2 and i + 1 < size and byte(data, i + 1) == 0xA0:
                        b = np.uint8(32)
                        i += 1
                    if b == 0:
                        i += 1
                        continue
                    if _SPACES[b]:
                        if pre and o > start:
                            if b == 13:
                                b = np.uint8(10)
                                if i + 1 < size and byte(data, i + 1) == 10:
                                    i += 1
                            text[o] = b
                            o += 1
                        elif pre:
                            lead = lead + 1 if b == 32 or b == 9 else 0
                        space = True
                        i += 1
                        continue
                    if o == start:
                        at = top
                        space = False
                        breaks = 0
                        if not body:
                            body = i
                        if pre:
                            for _ in range(lead):
                                text[o] = 32
                                o += 1
                    elif breaks and not pre:
                        text[o] = 10
                        o += 1
                    elif space and not pre:
                        text[o] = 32
                        o += 1
                    space = False
                    breaks = 0
                    text[o] = b
                    o += 1
                    linked += link >= 0 and b & 0xC0 != 0x80
                    i += 1
                continue
            # A tag, a comment or a lone `<`.
            begin = i
            i += 1
            b = byte(data, i) if i < size else np.uint8(0)
            if b == 33 or b == 63 or (b == 47 and i + 1 < size and not _is_letter(byte(data, i + 1))):
                if b == 33 and i + 2 < size and byte(data, i + 1) == 45 and byte(data, i + 2) == 45:
                    # `<!-->` and `<!--->` are comments too (13.2.5.43)
                    i += 1
                    dashes = 0
                    seen = 0
                    while i < size:
                        b = byte(data, i)
                        i += 1
                        if b == 45:
                            dashes += 1
                            seen += 1
                        elif b == 62 and dashes >= 2:
                            break
                        elif b == 33 and dashes >= 2 and seen >= 4:
                            continue
                        else:
                            dashes = 0
                            seen += 1
                else:
                    while i < size and byte(data, i) != 62:
                        i += 1
                    i += 1
                i = min(i, size)
                continue
            if b == 47 and i + 1 < size:
                closing = True
                i += 1
                b = byte(data, i)
            if not _is_letter(b):
                # text: `<` and nothing more
                if not s_skip[top]:
                    if o == start:
                        at = top
                        if not body:
                            body = begin
                    elif breaks and s_kind[top] != PREFORMATTED:
                        text[o] = 10
                        o += 1
                    elif space and s_kind[top] != PREFORMATTED:
                        text[o] = 32
                        o += 1
                    space = False
                    breaks = 0
                    text[o] = 60
                    o += 1
                    linked += link >= 0
                i = begin + 1
                continue
            custom = False
            while i < size:
                b = byte(data, i)
                if b == 62 or b == 47 or _SPACES[b]:
                    break
                custom |= b == 45
                h = (h ^ np.uint64(b | 32 if _is_letter(b) else b)) * PRIME
                i += 1
            tag = _element(h)
            if tag == OTHER and custom:
                tag = np.int64(CUSTOM)
            # Attributes.
            whole = False
            while i < size:
                b = byte(data, i)
                if _SPACES[b]:
                    i += 1
                    continue
                if b == 62:
                    i += 1
                    whole = True
                    break
                if b == 47:
                    i += 1
                    self_closed = i < size and byte(data, i) == 62
                    continue
                name = FNV
                first = True
                while i < size:
                    b = byte(data, i)
                    if b == 62 or b == 47 or _SPACES[b] or (b == 61 and not first):
                        break
                    first = False
                    name = (name ^ np.uint64(b | 32 if _is_letter(b) else b)) * PRIME
                    i += 1
                while i < size and _SPACES[byte(data, i)]:
                    i += 1
                value = value_end = i
                if i < size and byte(data, i) == 61:
                    i += 1
                    while i < size and _SPACES[byte(data, i)]:
                        i += 1
                    if i < size and (byte(data, i) == 34 or byte(data, i) == 39):
                        quote = byte(data, i)
                        i += 1
                        value = i
                        while i < size and byte(data, i) != quote:
                            i += 1
                        value_end = i
                        i += 1
                    else:
                        value = i
                        while i < size:
                            b = byte(data, i)
                            if b == 62 or _SPACES[b]:
                                break
                            i += 1
                        value_end = i
                if closing:
                    continue
                if name == _A_CLASS or name == _A_ID or name == _A_ROLE or name == _A_ITEMPROP:
                    found, hashed = _words(data, value, value_end)
                    bits |= found
                    if name == _A_CLASS:
                        names = hashed
                elif name == _A_HIDDEN:
                    hides = True
                elif name == _A_ARIA:
                    hides |= value < value_end and byte(data, value) | 32 == 116
                elif name == _A_STYLE:
                    hides |= _hides(data, value, value_end)
                elif name == _A_HREF:
                    target = True
            if not whole:
                i = size  # the standard drops a tag that the page ends in
                continue
        properties = PROPERTIES[tag]

        # Does the tag end the open block?
        if ends:
            flush = True
        elif tag == _BR:
            flush = False
            if not s_skip[top] and o > start:
                if s_kind[top] == PREFORMATTED:
                    text[o] = 10
                    o += 1
                else:
                    breaks += 1
                    flush = breaks > 1
        else:
            flush = properties & BLOCK != 0
        if flush:
            space = False
            breaks = 0
            while o > start and _SPACES[text[o - 1]]:
                o -= 1
            if o > start:
                b_begin[blocks], b_end[blocks] = start, o
                b_kind[blocks] = s_kind[at]
                b_node[blocks] = s_node[at]
                b_bullet[blocks] = min(s_lists[at], 255) if item else 0
                b_ordinal[blocks] = ordinal if item else 0
                item = False
                b_row[blocks], b_cell[blocks] = s_row[at], s_cell[at]
                b_bits[blocks] = s_bits[at]
                for k in range(BITS):
                    b_above[blocks, k] = s_above[at, k]
                b_links[blocks], b_linked[blocks] = links, min(linked, o - start)
                blocks += 1
            start = o
            links = linked = lead = 0
        if ends:
            break
        if tag == _LINK:
            link = -1
            if not closing and target:
                link = top
                links += 1
        if tag == _BODY and not closing:
            body = i
        if properties & INLINE:
            if tag > CUSTOM:
                inline = max(0, inline - 1) if closing else inline + 1
                depth = max(depth, top + beyond + inline)
            continue
        if properties & VOID:
            continue

        if closing:
            if tag == _P and not open_tags[_P]:
                continue
            if beyond:
                beyond -= 1
                continue
            if not open_tags[tag] and not (_H1 <= tag <= _H6):
                continue
            height = top
            found_it = False
            while height > max(0, top - REACH):
                if s_tag[height] == tag and (tag != CUSTOM or s_hash[height] == h):
                    found_it = True
                    break
                if _H1 <= tag <= _H6 and _H1 <= s_tag[height] <= _H6:
                    found_it = True
                    break
                scope = PROPERTIES[s_tag[height]]
                if scope & SCOPE and tag != _TABLE and tag != _TR and not (_TBODY <= tag <= _TFOOT):
                    break
                if s_tag[height] == _TABLE and tag != _TABLE:
                    break
                if tag == _SPAN and scope & BLOCK:
                    break
                height -= 1
            if found_it:
                while top >= height:
                    open_tags[s_tag[top]] -= 1
                    top -= 1
                if link > top:
                    link = -1
            continue

        # Raw text: passed over up to its end tag.
        if properties & RAW and not (self_closed and s_skip[top]):
            content = i
            while i < size:
                if byte(data, i) == 60 and i + 1 < size and byte(data, i + 1) == 47:
                    k = i + 2
                    other = FNV
                    while k < size and k < i + 12:
                        b = byte(data, k)
                        if b == 62 or b == 47 or _SPACES[b]:
                            break
                        other = (other ^ np.uint64(b | 32 if _is_letter(b) else b)) * PRIME
                        k += 1
                    if other == h:
                        break
                i += 1
            if tag == _TITLE and not title_end and not s_skip[top]:
                title_begin, title_end = content, i
            while i < size and byte(data, i) != 62:
                i += 1
            i = min(i + 1, size)
            continue
        if self_closed and s_skip[top]:
            continue  # in SVG `<path/>` is a whole element

        # Elements that the start tag closes.
        height = top + 1
        if properties & CLOSES_P and open_tags[_P]:
            k = top
            while k > max(0, top - REACH):
                if s_tag[k] == _P:
                    height = k
                    break
                if PROPERTIES[s_tag[k]] & SCOPE or s_tag[k] == _BUTTON:
                    break
                k -= 1
        k = min(height, top + 1) - 1
        if tag == _LI or tag == _DT or tag == _DD or tag == _OPTION:
            lowest = max(0, k - REACH)
            while k > lowest:
                t = s_tag[k]
                if t == tag or (tag == _DD and t == _DT) or (tag == _DT and t == _DD):
                    height = k
                    break
                if t == _UL or t == _OL or t == _DL or t == _MENU or t == _DIR or PROPERTIES[t] & SCOPE:
                    break
                k -= 1
        elif _H1 <= tag <= _H6 and _H1 <= s_tag[k] <= _H6:
            height = k
        elif tag == _TD or tag == _TH or tag == _TR or _TBODY <= tag <= _TFOOT or tag == _CAPTION:
            lowest = max(0, k - REACH)
            while k > lowest:
                t = s_tag[k]
                if t == _TABLE or t == _SELECT or t == _SVG:
                    break
                if t == _TD or t == _TH or t == _CAPTION:
                    height = k
                elif tag != _TD and tag != _TH:
                    if t == _TR or (tag != _TR and _TBODY <= t <= _TFOOT):
                        height = k
                elif t == _TR:
                    break
                k -= 1
        while top >= height:
            open_tags[s_tag[top]] -= 1
            top -= 1
        if link > top:
            link = -1

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
        if _KIND[tag] != TEXT:
            s_kind[top] = _KIND[tag]
        s_lists[top], s_row[top], s_cell[top] = s_lists[below], s_row[below], s_cell[below]
        s_skip[top] = s_skip[below] or properties & SKIP != 0
        s_items[top] = 0 if tag == _OL else -1
        if tag == _LI:
            item = True
            ordinal = 0
            if s_items[below] >= 0:
                s_items[below] += 1
                ordinal = s_items[below]
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
            up = s_above[below, k]
            if (bits >> np.uint64(k)) & np.uint64(1):
                up = np.int8(0)
            elif up < NONE - 1:
                up += np.int8(1)
            s_above[top, k] = up
        n_parent[nodes], n_tag[nodes], n_bits[nodes] = s_node[below], tag, bits
        n_path[nodes] = (n_path[s_node[below]] ^ h) * PRIME ^ names
        s_node[top] = nodes
        nodes += 1

    return Page(
        text[:o],
        Blocks(
            b_begin[:blocks],
            b_end[:blocks],
            b_kind[:blocks],
            b_node[:blocks],
            b_bullet[:blocks],
            b_ordinal[:blocks],
            b_row[:blocks],
            b_cell[:blocks],
            b_bits[:blocks],
            b_above[:blocks],
            b_links[:blocks],
            b_linked[:blocks],
        ),
        Nodes(n_parent[:nodes], n_tag[:nodes], n_bits[:nodes], n_path[:nodes]),
        (title_begin, title_end),
        depth,
        body,
    )

"""Tags, comments and no-break spaces in HTML source, as the standard's tokenizer reads them."""

from typing import NamedTuple

import numpy as np

from gristmill.tasks.extraction.vocabulary import (
    CUSTOM,
    EDGE,
    FNV,
    OTHER,
    PRIME,
    SYMBOLS,
    TAG_KEYS,
    TAG_VALUES,
    WORDS,
    automaton,
    name_hash,
)
from gristmill.tasks.kernels.buffers import block, byte
from gristmill.tasks.kernels.compiled import nb


class Tag(NamedTuple):
    """A tag of the source.

    element: int64, see `vocabulary`. name: uint64, the hash of its name. end: where what follows it begins. whole: it
    ends before the page does. self_closed: it ends with `/>`. Of a start tag only: bits: uint64, of the words (WORDS)
    in its class, id, role and itemprop; classes: uint64, the hash of its class; hides: by `hidden`, `aria-hidden` or
    its style; shown: `hidden` and its style do not hide it from the eye; target: it has a `href`.
    """

    element: int
    name: int
    end: int
    whole: bool
    self_closed: bool
    bits: int
    classes: int
    hides: bool
    shown: bool
    target: bool


# White space of HTML, by byte.
SPACES = np.zeros(256, np.bool_)
SPACES[list(b" \t\n\r\f")] = True
_ONES, _HIGH = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)

_NBSP = np.frombuffer(b"&nbsp;", np.uint8)
_NBSP_10 = np.frombuffer(b"&#160;", np.uint8)
_NBSP_16 = np.frombuffer(b"&#xa0;", np.uint8)
_CLASSES, _CLASS_BITS = automaton(WORDS, False)
_DISPLAY_NONE = np.frombuffer(b"display:none", np.uint8)
_NOT_VISIBLE = np.frombuffer(b"visibility:hidden", np.uint8)
MATH_TYPES = np.frombuffer(b"math/tex", np.uint8)
_ALT, _TITLE, _LATEX = (np.frombuffer(word, np.uint8) for word in (b"alt", b"title", b"latex"))
_BEGIN = np.frombuffer(b"\\begin{", np.uint8)
# In the class or the address of an image that stands for an emoji or for `:-)`; the most bytes of these, of an emoji of
# a family of four with entities.
_EMOJI, _SMILEY, _EMOTICON = (np.frombuffer(word, np.uint8) for word in (b"emoji", b"smil", b"emoticon"))
_EMOJI_BYTES = 80
_A_CLASS_NAME, _SRC = np.frombuffer(b"class", np.uint8), np.frombuffer(b"src", np.uint8)
_TEX, _MATH, _MIME, _LA = (np.frombuffer(word, np.uint8) for word in (b"tex", b"math", b"mime", b"la"))
_MATH_FOLDER, _RENDER, _DATA = (np.frombuffer(word, np.uint8) for word in (b"/math/", b"render/", b"data:"))


def _attribute(name: str) -> np.uint64:
    return np.uint64(name_hash(name))


# What an element may declare of itself, by the hash of the attribute's name.
_A_CLASS, _A_ID, _A_ROLE, _A_ITEMPROP = (_attribute(n) for n in ("class", "id", "role", "itemprop"))
_A_STYLE, _A_HIDDEN, _A_ARIA, _A_HREF = (_attribute(n) for n in ("style", "hidden", "aria-hidden", "href"))


@nb.njit(nogil=True, cache=True, inline="always")
def is_letter(b):
    return 97 <= (b | 32) <= 122


@nb.njit(nogil=True, cache=True, inline="always")
def next_byte(data, i, b):
    """Where the byte `b` stands next, from `i` on; the page's size without it. Eight bytes at once."""
    size = len(data)
    eight = np.uint64(b) * _ONES
    while i + 8 <= size:
        other = block(data, i) ^ eight
        equal = (other - _ONES) & ~other & _HIGH
        if equal:
            break
        i += 8
    while i < size and byte(data, i) != b:
        i += 1
    return i


@nb.njit(nogil=True, cache=True)
def count_tags(data):
    """At least the number of tags and comments in a page: how often `<` stands before a letter, `/`, `!` or `?`."""
    n = 0
    i = next_byte(data, 0, 60)
    while i + 1 < len(data):
        b = byte(data, i + 1)
        n += b == 47 or b == 33 or b == 63 or is_letter(b)
        i = next_byte(data, i + 1, 60)
    return n


@nb.njit(nogil=True, cache=True)
def _matches(data, i, text):
    """Whether `text` (lower case) stands at `i`, in any case."""
    if i + len(text) > len(data):
        return False
    for k in range(len(text)):
        b = byte(data, i + k)
        if b != text[k] and not (is_letter(b) and b | 32 == text[k]):
            return False
    return True


@nb.njit(nogil=True, cache=True)
def text_byte(data, i):
    """(a byte of text, where the next one begins); a no-break space, of any notation, is a space."""
    b = byte(data, i)
    if b == 38 and (_matches(data, i, _NBSP) or _matches(data, i, _NBSP_10) or _matches(data, i, _NBSP_16)):
        return np.uint8(32), i + 6
    if b == 0xC2 and i + 1 < len(data) and byte(data, i + 1) == 0xA0:
        return np.uint8(32), i + 2
    return b, i + 1


@nb.njit(nogil=True, cache=True)
def after_bracket(data, i):
    """Where what follows the next `>` begins; the page's size without one."""
    return min(next_byte(data, i, 62) + 1, len(data))


@nb.njit(nogil=True, cache=True)
def comment_end(data, i):
    """Where what begins with `<!`, `<?`, or `</` without a letter, ends; `i`: the byte after its `<`."""
    size = len(data)
    if not (byte(data, i) == 33 and i + 2 < size and byte(data, i + 1) == 45 and byte(data, i + 2) == 45):
        return after_bracket(data, i)
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
    return i


@nb.njit(nogil=True, cache=True)
def raw_text_end(data, i, name):
    """Where, from `i` on, the end tag begins of an element that holds raw text; the page's size without one."""
    size = len(data)
    i = next_byte(data, i, 60)
    while i < size:
        if i + 1 < size and byte(data, i + 1) == 47:
            k = i + 2
            other = FNV
            while k < size and k < i + 12:
                b = byte(data, k)
                if b == 62 or b == 47 or SPACES[b]:
                    break
                other = (other ^ np.uint64(b | 32 if is_letter(b) else b)) * PRIME
                k += 1
            if other == name:
                break
        i = next_byte(data, i + 1, 60)
    return i


# Inlined: as a call it makes the scan a tenth slower.
@nb.njit(nogil=True, cache=True, inline="always")
def read_tag(data, i, closing):
    """The `Tag` whose name begins at `i`; `closing`: it is an end tag, so its attributes count for nothing."""
    size = len(data)
    h = FNV
    custom = False
    while i < size:
        b = byte(data, i)
        if b == 62 or b == 47 or SPACES[b]:
            break
        custom |= b == 45
        h = (h ^ np.uint64(b | 32 if is_letter(b) else b)) * PRIME
        i += 1
    element = _element(h)
    if element == OTHER and custom:
        element = np.int64(CUSTOM)
    bits = np.uint64(0)
    classes = FNV
    self_closed = whole = hides = target = False
    shown = True
    while i < size:
        b = byte(data, i)
        if SPACES[b]:
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
            if b == 62 or b == 47 or SPACES[b] or (b == 61 and not first):
                break
            first = False
            name = (name ^ np.uint64(b | 32 if is_letter(b) else b)) * PRIME
            i += 1
        while i < size and SPACES[byte(data, i)]:
            i += 1
        value = value_end = i
        if i < size and byte(data, i) == 61:
            i += 1
            while i < size and SPACES[byte(data, i)]:
                i += 1
            if i < size and (byte(data, i) == 34 or byte(data, i) == 39):
                quote = byte(data, i)
                i += 1
                value = i
                i = value_end = next_byte(data, i, quote)
                i += 1
            else:
                value = i
                while i < size:
                    b = byte(data, i)
                    if b == 62 or SPACES[b]:
                        break
                    i += 1
                value_end = i
        if closing:
            continue
        if name == _A_CLASS or name == _A_ID or name == _A_ROLE or name == _A_ITEMPROP:
            found, hashed = _words(data, value, value_end)
            bits |= found
            if name == _A_CLASS:
                classes = hashed
        elif name == _A_HIDDEN:
            hides = True
            shown = False
        elif name == _A_ARIA:
            hides |= value < value_end and byte(data, value) | 32 == 116
        elif name == _A_STYLE:
            if _hides(data, value, value_end):
                hides = True
                shown = False
        elif name == _A_HREF:
            target = True
    return Tag(element, h, i if whole else size, whole, self_closed, bits, classes, hides, shown, target)


@nb.njit(nogil=True, cache=True)
def _element(h):
    slot = np.int64(h & np.uint64(511))
    while TAG_KEYS[slot]:
        if TAG_KEYS[slot] == h:
            return TAG_VALUES[slot]
        slot = (slot + 1) & 511
    return OTHER


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
def _hides(data, begin, end):
    """Whether a style attribute hides its element: `display:none` or `visibility:hidden`, spaces passed over."""
    for word in (_DISPLAY_NONE, _NOT_VISIBLE):
        k = 0
        for i in range(begin, end):
            b = byte(data, i)
            if b == 32:
                continue
            b = b | 32 if is_letter(b) else b
            k = k + 1 if b == word[k] else (1 if b == word[0] else 0)
            if k == len(word):
                return True
    return False


@nb.njit(nogil=True, cache=True)
def matches_in(data, begin, end, text):
    """Whether `text` (lower case) stands in `data[begin:end]`, in any case."""
    for i in range(begin, end - len(text) + 1):
        if _matches(data, i, text):
            return True
    return False


@nb.njit(nogil=True, cache=True)
def text_of_image(data, begin, end):
    """(begin, end) of what the tag of an image, `data[begin:end]`, has in place of text, (-1, -1) without it: the
    formula or the emoji that the image shows. Of a formula its `alt`, or its `title` if it is a service's that takes
    LaTeX in an address."""
    alt, alt_end = value_of(data, begin, end, _ALT)
    if _is_formula(data, begin, end, alt, alt_end):
        if alt_end <= alt:
            address, address_end = value_of(data, begin, end, _SRC)
            if address_end >= 0 and matches_in(data, address, address_end, _LATEX):
                return value_of(data, begin, end, _TITLE)
        return alt, alt_end
    if 0 < alt_end - alt <= _EMOJI_BYTES and not is_letter(byte(data, alt)):
        for word in (_EMOJI, _SMILEY, _EMOTICON):
            if matches_in(data, begin, end, word):
                return alt, alt_end
    return -1, -1


@nb.njit(nogil=True, cache=True)
def _is_formula(data, begin, end, alt, alt_end):
    """Whether the tag of an image may be that of a formula: by a class that has the word `tex` or `math`, or one that
    ends with `latex` (QuickLaTeX), by its address, or by an `alt` that is LaTeX, as latex2html writes it: between
    dollars, or `\\begin`."""
    if alt_end > alt + 2:
        dollars = byte(data, alt) == 36 and byte(data, alt_end - 1) == 36
        if dollars or matches_in(data, alt, min(alt + len(_BEGIN), alt_end), _BEGIN):
            return True
    value, value_end = value_of(data, begin, end, _A_CLASS_NAME)
    for i in range(value, value_end):
        size = 3 if _matches(data, i, _TEX) else 4 if _matches(data, i, _MATH) else 0
        latex = size == 3 and i - 2 >= value and _matches(data, i - 2, _LA)
        if size and i + size <= value_end and (latex or i == value or not _is_alphanumeric(byte(data, i - 1))):
            if i + size == value_end or not _is_alphanumeric(byte(data, i + size)):
                return True
    value, value_end = value_of(data, begin, end, _SRC)
    return value_end > value and _is_address_of_formula(data, value, value_end)


@nb.njit(nogil=True, cache=True, inline="always")
def _is_alphanumeric(b):
    return is_letter(b) or 48 <= b <= 57


@nb.njit(nogil=True, cache=True)
def _is_address_of_formula(data, begin, end):
    """Whether an image's address is that of a service that draws LaTeX (mathtex.cgi, mimetex.cgi, latex.php?,
    gif.latex?, Moodle's filter/tex/), or of a folder of drawn formulas (MediaWiki's math/render/ and math/a/b/,
    Sphinx's _images/math/ and a digest)."""
    if _matches(data, begin, _DATA):
        return False
    for i in range(begin, end):
        if _matches(data, i, _TEX) and i + 3 <= end:
            if i - 4 >= begin and (_matches(data, i - 4, _MATH) or _matches(data, i - 4, _MIME)):
                return True
            latex = i - 2 >= begin and _matches(data, i - 2, _LA)
            before = byte(data, i - 3 if latex else i - 1) if i - (3 if latex else 1) >= begin else np.uint8(0)
            after = byte(data, i + 3) if i + 3 < end else np.uint8(47)
            apart = before == 47 or before == 63 or before == 38 or (latex and before == 46)
            if apart and (after == 46 or after == 47 or after == 63 or after == 61):
                return True
        elif _matches(data, i, _MATH_FOLDER):
            if _matches(data, i + 6, _RENDER):
                return True
            k = i + 6
            while k < end and (48 <= byte(data, k) <= 57 or 97 <= byte(data, k) | 32 <= 102):
                k += 1
            if i + 6 < k < end and (byte(data, k) == 47 or byte(data, k) == 46):
                return True
    return False


@nb.njit(nogil=True, cache=True)
def value_of(data, begin, end, name):
    """(begin, end) of the value in quotes of a tag's attribute; (-1, -1) without one."""
    i = begin + 1
    while i + len(name) + 2 < end:
        if SPACES[byte(data, i)] and _matches(data, i + 1, name) and byte(data, i + 1 + len(name)) == 61:
            quote = byte(data, i + 2 + len(name))
            if quote == 34 or quote == 39:
                i += 3 + len(name)
                value = i
                while i < end and byte(data, i) != quote:
                    i += 1
                return value, min(i, end)
        i += 1
    return -1, -1

"""What names mean in HTML: elements, and words in `class`, `id` and `role` that web authors use alike; and the tables
that a scan of a page gives.

Elements are those of the HTML standard, with the obsolete ones that crawls are full of. The groups of words follow
what Readability, trafilatura, jusText and Boilerpipe look for; which group speaks for main text and which against
it is left to the classifier.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

# Properties of elements.
BLOCK = 1  # begins and ends a block of text
VOID = 2  # has no content
RAW = 4  # its content is text up to its end tag (HTML standard, 13.2.5.2 to 13.2.5.4)
SKIP = 8  # its content is not text of the page
CLOSES_P = 16  # its start tag ends an open paragraph (13.2.6.4.7)
SCOPE = 32  # an end tag inside does not reach an element outside (13.2.4.2)
INLINE = 64  # changes how text looks; never on the stack
MARKED = 128  # its content is not to be read as if it were not there: exponents, ruby, formulas, quotations
BREAKS_OUT = 256  # its start tag ends an open `svg` (13.2.6.5)

_PROPERTIES = {
    "article section aside header footer main nav hgroup address blockquote div center figure figcaption details "
    "summary dialog fieldset form dl ol ul menu dir p pre listing xmp plaintext h1 h2 h3 h4 h5 h6 search": BLOCK
    | CLOSES_P,
    "li dt dd": BLOCK | CLOSES_P,
    "table": BLOCK | CLOSES_P | SCOPE,
    "td th caption": BLOCK | SCOPE,
    "tr tbody thead tfoot colgroup": BLOCK,
    "hr": BLOCK | CLOSES_P | VOID,
    "button label legend": BLOCK,
    "option optgroup": BLOCK | SKIP,
    "select datalist template": BLOCK | SKIP | SCOPE,
    "object marquee": SCOPE,
    "svg audio video canvas": SKIP,
    "script style iframe noembed noframes textarea title": RAW | SKIP,
    "area base basefont bgsound br col embed frame img input keygen link meta param source track wbr": VOID,
    "noscript span": 0,
    "html head body frameset": INLINE,
    "b i u em strong font small big tt s strike nobr cite q dfn abbr acronym code kbd samp var sub sup mark bdi bdo "
    "ins del time data ruby rb rt rtc rp blink output map picture slot math": INLINE,
    "a": INLINE,
    "foreignobject": SCOPE,
}
_MARKED = "sup sub ruby rt rtc rp math - q del s strike".split()
_BREAKS_OUT = (
    "b big blockquote body br center code dd div dl dt em embed h1 h2 h3 h4 h5 h6 head hr i img li listing menu meta "
    "nobr ol p pre ruby s small span strong strike sub sup table tt u ul var"
).split()
ELEMENTS = ("", "-", *(name for names in _PROPERTIES for name in names.split()))
OTHER, CUSTOM = 0, 1  # of no known name; of a name with a hyphen (a custom element)
E = {name: i for i, name in enumerate(ELEMENTS)}
PROPERTIES = np.array(
    [INLINE, 0, *(value for names, value in _PROPERTIES.items() for _ in names.split())], dtype=np.int64
)
for _names, _property in ((_MARKED, MARKED), (_BREAKS_OUT, BREAKS_OUT)):
    PROPERTIES[[E[_name] for _name in _names]] |= _property

# Bits 0-31 of a block's surroundings: words in class, id, role and itemprop of the elements around it. `^` is the edge
# of a word: a character that is no letter, or the step from a small to a capital letter.
WORDS = (
    ("comment", "comment disqus ^respond ^replies livefyre"),
    ("share", "share sharing social facebook twitter addthis sociable ^like^"),
    (
        "related",
        "related recommend popular trending similar teaser readmore outbrain taboola upnext carousel slider slick "
        "swiper ^more^ ^also^ latest recent ^further",
    ),
    ("advert", "^ad^ ^ads^ advert sponsor promo banner dfp commercial adsense ^cta callout"),
    ("navigation", "^nav navbar navigation menu crumb toolbar ^tabs ^skip subnav sitenav"),
    ("footer", "foot copyright colophon legal contentinfo"),
    ("sidebar", "sidebar ^rail^ aside widget ^side^ ^right^ ^left^ complementary secondary ^sb^"),
    ("consent", "cookie consent gdpr privacy ^ccpa onetrust"),
    ("newsletter", "newsletter subscri signup optin mailing ^mailchimp"),
    ("login", "modal popup overlay login signin dialog paywall ^register account lightbox"),
    ("byline", "meta byline author ^date timestamp ^time posted ^info dateline publish"),
    ("tags", "^tag^ ^tags^ taglist categor keyword label ^topics"),
    ("media", "caption image photo gallery media video figure credit thumb picture ^img"),
    ("pager", "pagina pager ^next ^prev pagenavi ^older ^newer"),
    ("article", "article ^post^ ^posts^ story blog ^news singlepost ^single^"),
    ("content", "content"),
    ("entry", "entry"),
    ("body", "body ^text copy richtext prose ^rte paragraph wysiwyg ^text^"),
    ("main", "main primary ^center^ ^middle"),
    ("product", "product description detail ^spec feature"),
    ("shop", "cart checkout ^shop basket wishlist ^buy price addto ^sku ^stock shipping delivery"),
    ("forum", "message thread reply answer question forum discussion bbcode postbody ^topic^ bubble"),
    ("review", "review rating ^stars testimonial"),
    ("docs", "^doc^ ^docs markdown wiki parser readme ^toc tutorial highlight codehilite mw^ sphinx"),
    ("header", "header masthead ^head^ topbar ^top^ hero logo brand ^banner^"),
    ("title", "title headline heading ^headings"),
    ("hidden", "hidden ^hide sronly sr^only visually screen^reader noprint ^print collapse invisible offscreen"),
    ("search", "search filter ^sort facet form^ input select dropdown"),
    ("cards", "list grid card item^ tile ^items ^row^ ^col^"),
    ("intro", "summary excerpt ^lead^ intro standfirst ^deck^ subtitle abstract ^dek"),
    ("person", "^bio ^about profile avatar ^user staff ^team ^signature"),
    ("accordion", "accordion ^faq ^tab^ panel toggle expand"),
)
# Bits 32-63: the elements themselves.
AROUND = (
    "article main section nav aside footer header form figure table li dl blockquote pre noscript button label hidden "
    "details dt heading td p dialog figcaption address center legend th caption custom ul"
).split()
ALIASES = {
    "ol": "ul",
    "menu": "ul",
    "dir": "ul",
    "listing": "pre",
    "xmp": "pre",
    "plaintext": "pre",
    "dd": "dl",
    "fieldset": "form",
    "summary": "details",
    "-": "custom",
    **{f"h{level}": "heading" for level in range(1, 7)},
}
BITS = 64
WHERE = np.zeros(len(ELEMENTS), np.uint64)
for _i, _name in enumerate(ELEMENTS):
    _name = ALIASES.get(_name, _name)
    if _name in AROUND:
        WHERE[_i] = np.uint64(1) << np.uint64(32 + AROUND.index(_name))
HIDDEN = np.uint64(1) << np.uint64(32 + AROUND.index("hidden"))

# Words in the text of a block.
CUES = (
    ("rights", "copyright ^rights reserved^ ^all rights"),
    ("consent", "^cookie ^privacy ^terms of ^gdpr"),
    ("subscribe", "subscrib ^sign up newsletter ^your email ^inbox"),
    ("account", "^log in^ ^login^ ^sign in^ ^register ^password ^my account"),
    ("share", "^share this ^share on facebook twitter pinterest ^whatsapp linkedin ^follow us ^tweet"),
    ("related", "^related ^read more ^see also ^you may ^you might ^recommended ^more from ^also read ^more stories"),
    ("comments", "^comments^ ^comment^ ^reply^ ^replies ^leave a"),
    ("advert", "advertis sponsored ^promoted"),
    ("byline", "^posted ^published ^updated ^written by ^by^ ^author ^minutes ago ^hours ago ^min read"),
    ("pager", "^next^ ^previous^ ^page^ ^back to ^older^ ^newer^"),
    ("shop", "^add to ^cart^ ^buy now ^in stock ^shipping ^checkout ^quantity"),
    ("contact", "^contact us ^about us ^phone^ ^email^ ^tel^ ^address"),
    ("media", "^photo^ ^image^ ^getty ^credit ^video ^caption"),
    ("script", "javascript ^browser ^loading"),
    ("legal", "^disclaimer ^license ^licensed ^trademark"),
    ("click", "^click ^download ^view all ^show more ^learn more ^get started ^read the"),
)


# FNV-1a, 64 bits: its first value and its factor.
FNV = np.uint64(0xCBF29CE484222325)
PRIME = np.uint64(0x100000001B3)


def name_hash(name: str) -> int:
    """FNV-1a, 64 bits, of a name in lower case."""
    h = int(FNV)
    for b in name.encode():
        h = (h ^ b) * int(PRIME) % 2**64
    return h


def _table() -> tuple[np.ndarray, np.ndarray]:
    keys, values = np.zeros(512, np.uint64), np.zeros(512, np.int64)
    for i, name in enumerate(ELEMENTS[2:], 2):
        h = name_hash(name)
        slot = h & 511
        while keys[slot]:
            slot = (slot + 1) & 511
        keys[slot], values[slot] = h, i
    return keys, values


TAG_KEYS, TAG_VALUES = _table()
EDGE = 26


def _symbols() -> np.ndarray:
    table = np.full(256, EDGE, np.int64)
    for letter in range(26):
        table[65 + letter] = table[97 + letter] = letter
    return table


# Of each byte, what the automata read: 0 to 25 for a letter of either case, EDGE for all others.
SYMBOLS = _symbols()


@cache
def automaton(groups: tuple[tuple[str, str], ...], spaced: bool) -> tuple[np.ndarray, np.ndarray]:
    """The automaton that finds all words of the groups in one pass (Aho and Corasick 1975).

    next state: int16, shape (states, 32), a letter a to z or EDGE each, of which 27 are used; groups: uint64 of each
    state, bit i for group i. With `spaced` a group's patterns may hold spaces: they are cut at ` ^` only, and a space
    is an edge.
    """
    steps: list[dict[int, int]] = [{}]
    group_bits = [0]
    for bit, (_, words) in enumerate(groups):
        for word in words.replace(" ^", "\n^").split("\n") if spaced else words.split():
            state = 0
            for letter in word.replace(" ", "^"):
                symbol = EDGE if letter == "^" else ord(letter) - 97
                if symbol not in steps[state]:
                    steps[state][symbol] = len(steps)
                    steps.append({})
                    group_bits.append(0)
                state = steps[state][symbol]
            group_bits[state] |= 1 << bit
    table = np.zeros((len(steps), 32), np.int16)
    back = [0] * len(steps)
    queue = []
    for symbol, state in steps[0].items():
        table[0, symbol] = state
        queue.append(state)
    for state in queue:
        group_bits[state] |= group_bits[back[state]]
        table[state] = table[back[state]]
        for symbol, following in steps[state].items():
            back[following] = int(table[back[state], symbol])
            table[state, symbol] = following
            queue.append(following)
    return table, np.array(group_bits, np.uint64)


# What a scan of a page gives: flat tables of its blocks, elements and tags.


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
    lists it is in if it begins a list item, else 0. row, cell: numbers of the table row and cell around it, counted
    through the page, 0 outside of tables. bits: what is around it, see `vocabulary` (WORDS and AROUND). above: int8,
    shape (blocks, 64): for each bit how many elements up the nearest one is that has it, NONE if there is none. links:
    links that begin in it; linked: code points of its text inside of links, white space aside.
    """

    begin: np.ndarray
    end: np.ndarray
    kind: np.ndarray
    node: np.ndarray
    bullet: np.ndarray
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
    a parser would count that closes nothing by itself but what the standard closes.
    """

    text: np.ndarray
    blocks: Blocks
    nodes: Nodes
    tags: Tags
    title: tuple[int, int]
    depth: int

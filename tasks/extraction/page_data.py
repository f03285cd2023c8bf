"""The text of a page that a browser shows only after it has run scripts: it is in the page as data.

A page declares its text in JSON-LD, with the vocabulary of schema.org, or carries it as the state of a framework:
Next.js, Nuxt, Redux, Vuex, Apollo, SvelteKit, Inertia, Astro, and `application/json` of any kind. No engine reads
either, so this module serves all of them, and only where the text of an engine is poor (`text_of_data`).
"""

import html
import re
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, NamedTuple

from gristmill.tasks.extraction.prose import is_prose, joined, text_of, weight
from gristmill.tasks.extraction.scripts import JSON, LD, MAX_DEPTH, Texts, read_value, scripts
from gristmill.tasks.extraction.shells import shell

# A text below this weight is some forty words: a menu, a footer, a note about cookies.
_POOR, _TIMES = 250, 2
# A longer one may be a document, so only what the page itself declares to be its text is compared with it.
_TEASER, _TIMES_TEASER = 1000, 4
_DECLARED, _STATE = 100, 200  # the least weights; a state holds anything
# What a page with data has, in lower case: most pages have none of it, and are not parsed.
_MARKS = (b"application/ld+json", b"application/json", b"data-page=", b"<noscript", b"<astro-island")
_STATE_MARK = re.compile(rb"__[a-z_]{0,40}(?:state|data|nuxt|props|context|cache|next_f)")


def text_of_data(page: str, text: str, is_shell: bool) -> str:
    """The text in a page's data, for a page whose `text` by an engine is poor; otherwise empty.

    A text is poor if it is a shell's, or weighs less than 250 (characters, of which Chinese and Japanese ones weigh
    three) and the data have twice as much; or if it weighs less than 1000 and than a quarter of what the page declares
    as its `articleBody`. So a page that reads well stays as it is: its data repeat it, or are about something else.
    Declared texts below 100, and texts of a framework's state below 200, do not count.
    """
    is_poor = is_shell or (len(text) < _POOR and weight(text) < _POOR)
    if not (_has_marks(page) if is_poor else len(text) < _TEASER and "articleBody" in page):
        return ""
    shown = 0 if is_shell else weight(text)
    declared = joined(_declared(page))
    if weight(declared) >= max(_DECLARED, shown * (_TIMES if is_poor else _TIMES_TEASER)):
        return declared
    if not is_poor:
        return ""
    states = (joined(_heaviest(value)) for value in _states(page))
    stated = max(chain(states, _for_readers_without_scripts(page)), key=weight, default="")
    return stated if weight(stated) >= max(_STATE, shown * _TIMES) else ""


def _has_marks(page: str) -> bool:
    """Whether a page may have data. Searched are bytes: a pattern that ignores case takes three times as long."""
    data = page.encode("utf-8", "surrogatepass").lower()
    return any(mark in data for mark in _MARKS) or (b"__" in data and bool(_STATE_MARK.search(data)))


# ---- scripts and attributes

_ID = re.compile(r"\bid\s*=\s*[\"']?__NUXT_DATA__\b")
# Patterns begin with a literal, for which Python's `re` has a fast search; what precedes it is looked at behind it.
_ASSIGNED = re.compile(
    r"__(?<!\w__)(?:[A-Z0-9_]{0,40}(?:STATE|DATA|NUXT|PROPS|CONTEXT|CACHE)[A-Z0-9_]{0,40}|remixContext|staticRouterHydrationData)"
    r"[\"'\]]{0,2}\s{0,9}=(?![=>])\s{0,9}"
)
_FLIGHT = re.compile(r"__next_f(?<!\w__next_f)\.push\(\s*(?=\[)")
_ATTRIBUTE = re.compile(r"\b(?:data-page|props)\s{0,9}=\s{0,9}(?:\"(\s*\{[^\"]*)\"|'(\s*\{[^']*)')")
_NOSCRIPT = re.compile(r"<noscript\b[^>]{0,400}>([^<]*+(?:<(?!/noscript)[^<]*+)*+)", re.IGNORECASE)
_DEVALUE_TAGS = frozenset({"Reactive", "ShallowReactive", "Ref", "ShallowRef", "EmptyRef", "EmptyShallowRef", "Set"})


_MAX_STATES = 100  # of a script and of a page; a page has few


def _states(page: str) -> Iterator[Any]:
    flight: list[str] = []
    for script in scripts(page):
        if script.type == JSON:
            value = read_value(script.text)
            yield _revived(value) if _ID.search(script.attributes) and isinstance(value, list) else value
        elif script.type in ("", "module", "text/javascript", "application/javascript"):
            text = script.text
            for assigned in islice(_ASSIGNED.finditer(text), _MAX_STATES):
                yield read_value(text, assigned.end())
            for pushed in islice(_FLIGHT.finditer(text), _MAX_STATES):
                match read_value(text, pushed.end()):
                    case [1, str(part), *_]:
                        flight.append(part)
    if flight:
        yield _flight_rows("".join(flight))
    if "data-page" not in page and "props" not in page:
        return
    for attribute in islice(_ATTRIBUTE.finditer(page), _MAX_STATES):
        yield read_value(html.unescape(attribute[1] or attribute[2]))


def _for_readers_without_scripts(page: str) -> Iterator[str]:
    """The texts in `noscript`, which some engines pass over; not those that ask for scripts."""
    for element in _NOSCRIPT.finditer(page):
        text = text_of(element[1])
        if is_prose(text) and not shell(text):
            yield text


def _revived(values: list) -> Any:
    """The value of Nuxt 3's payload: a list in which containers name their values by their places in it (devalue)."""
    memo: dict[int, Any] = {}

    def at_place(place: Any, depth: int) -> Any:
        if not isinstance(place, int) or not 0 <= place < len(values) or depth > 50:
            return None
        if place in memo:
            return memo[place]
        value = values[place]
        memo[place] = None  # of a value that holds itself
        match value:
            case dict():
                value = {key: at_place(item, depth + 1) for key, item in value.items()}
            case [str(tag), *items] if tag in _DEVALUE_TAGS:
                value = [at_place(item, depth + 1) for item in items]
            case list():
                value = [at_place(item, depth + 1) for item in value]
        memo[place] = value
        return value

    return at_place(0, 0)


_ROW = re.compile(rb"[0-9a-f]+:(?:T([0-9a-f]+),|[A-Z]*)")


def _flight_rows(stream: str) -> list[Any]:
    """The rows of React's stream of a server's components, as Next.js writes it: JSON in a line, or a counted text."""
    data, position, rows = stream.encode("utf-8", "replace"), 0, list[Any]()
    while row := _ROW.match(data, position):
        if row[1]:
            position = row.end() + int(row[1], 16)
            rows.append({"text": data[row.end() : position].decode("utf-8", "replace")})
        else:
            end = data.find(b"\n", row.end())
            end = len(data) if end < 0 else end
            rows.append(read_value(data[row.end() : end].decode("utf-8", "replace")))
            position = end + 1
    return rows


# ---- JSON-LD

# Properties of schema.org that hold the text of a thing, wherever it is in the graph.
_BODIES = frozenset({"articleBody", "text", "recipeIngredient", "recipeInstructions", "transcript"})


def _declared(page: str) -> list[str]:
    texts = Texts[str]()
    for script in scripts(page):
        if script.type == LD:
            _add_declared(read_value(script.text), texts, 0)
    return texts


def _add_declared(value: Any, texts: Texts[str], depth: int) -> None:
    if texts.is_full(depth):
        return
    if isinstance(value, list):
        for each in value:
            _add_declared(each, texts, depth + 1)
    elif isinstance(value, dict):
        types = value.get("@type")
        is_job = types == "JobPosting" or (isinstance(types, list) and "JobPosting" in types)
        for key, each in value.items():
            if key in _BODIES or (is_job and key == "description"):
                texts += [
                    text_of(text) for text in (each if isinstance(each, list) else [each]) if isinstance(text, str)
                ]
            if not isinstance(each, str):
                _add_declared(each, texts, depth + 1)


# ---- the state of a framework

# Parts that hold the words of the site and not those of the page.
_NOT_OF_PAGE = re.compile(
    r"(?:messages|i18n\w*|intl|translations?|locales?|lang(?:uage)?s?|dictionary|labels|strings|\w*config|settings|"
    r"flags|features|env|seo\w*|meta\w*|head|og|\w*nav(?:igation)?|\w*menu|\w*footer\w*|\w*header|related\w*|"
    r"recommend\w*|similar\w*|sidebar|\w*cookies?\w*|\w*consent\w*|\w*privacy\w*|gdpr|newsletter\w*|ads?|advert\w*|"
    r"errors?|theme|legal\w*|disclaimer|popups?|modals?|banners?|toasts?|alerts?|notifications?|paywall\w*|"
    r"subscri\w*|comments?|authors?|user)\Z",
    re.IGNORECASE,
)
_OF_TEXT = re.compile(
    r"text|body|content|html|value|paragraph|article|story|markdown|rendered|copy|children|transcript|description|"
    r"summary|intro|lead|chapter|answer|question|post|message|\Ap\Z|blocks?|title|caption",
    re.IGNORECASE,
)
_PROSE_SHARE, _OF_OBJECT, _OF_LIST, _HALF = 2 / 3, 0.75, 0.95, 0.5
# A line that is no sentence: a heading, a verse, an item.
_WORDS = re.compile(r"\w[^{};<>=|_]*\s[^{};<>=|_]*\Z")
_LONG = 250  # the weight of prose that is a text by any name
_LEAVES = frozenset({"text", "span", "leaf"})
_CHILDREN = ("children", "content", "leaves", "nodes")
_BLOCKS = frozenset("p div li h1 h2 h3 h4 h5 h6 blockquote pre td th dt dd figcaption".split())
_NOT_TEXT = frozenset("script style nav footer header svg button form select noscript".split())


class _Leaf(NamedTuple):
    """A text of a state: the keys and places that lead to it, and whether it is prose."""

    path: tuple[str | int, ...]
    text: str
    is_prose: bool


def _heaviest(value: Any) -> list[str]:
    """The texts of that part of a state which has nearly all of its prose: the page's own, without what is around it.

    Empty where less than two thirds are prose: labels and notes of an application. From the root, a part is entered
    that has three quarters of the prose of an object, or 95% of a list, whose items are paragraphs as often as they
    are pages. An object of which no part has half is a site's, with notes, offers and teasers: empty, too.
    """
    leaves = Texts[_Leaf]()
    _add_leaves(value, (), "", leaves)
    depth = 0
    while len(leaves) > 1:
        shares: dict[str | int, int] = {}
        for leaf in leaves:
            if len(leaf.path) > depth and leaf.is_prose:
                shares[leaf.path[depth]] = shares.get(leaf.path[depth], 0) + weight(leaf.text)
        if not shares:
            return []
        best = max(shares, key=shares.__getitem__)
        share = shares[best] / sum(shares.values())
        if isinstance(best, str) and share < _HALF:
            return []
        if share < (_OF_LIST if isinstance(best, int) else _OF_OBJECT):
            break
        leaves = Texts(leaf for leaf in leaves if len(leaf.path) > depth and leaf.path[depth] == best)
        depth += 1
    prose = sum(weight(leaf.text) for leaf in leaves if leaf.is_prose)
    return [leaf.text for leaf in leaves] if prose > _PROSE_SHARE * sum(weight(leaf.text) for leaf in leaves) else []


def _add_leaves(value: Any, path: tuple[str | int, ...], key: str, leaves: Texts[_Leaf]) -> None:
    if leaves.is_full(len(path)):
        return
    if isinstance(value, str):
        _add_text(value, path, key, leaves)
    elif isinstance(value, dict):
        for name, each in value.items():
            if not isinstance(each, str | dict | list) or _NOT_OF_PAGE.match(name):
                continue
            _add_leaves(each, (*path, name), name, leaves)
    elif isinstance(value, list):
        match value:
            case ["$", str(tag), _, dict(properties), *_]:
                _add_element(tag, properties, path, leaves)
            case _ if run := _run(value, key):
                _add_text(run, path, "text", leaves)
            case _:
                for place, each in enumerate(value):
                    _add_leaves(each, (*path, place), key, leaves)


def _add_text(value: str, path: tuple[str | int, ...], key: str, leaves: Texts[_Leaf]) -> None:
    if len(value) < 3 or value[0] == "$" or value.startswith(("http:", "https:", "data:", "/")):
        return
    if value[0] in "{[" and len(value) > 50 and (nested := read_value(value)) is not None:
        _add_leaves(nested, (*path, "json"), key, leaves)
        return
    is_named = bool(_OF_TEXT.search(key))
    if not is_named and len(value) < _LONG / 3:
        return
    text = text_of(value)
    prose = is_prose(text) and (is_named or weight(text) >= _LONG)
    if prose or (is_named and _WORDS.match(text)):
        leaves.append(_Leaf(path, text, prose))


def _add_element(tag: str, properties: dict, path: tuple[str | int, ...], leaves: Texts[_Leaf]) -> None:
    """The texts of an element of React; those of a component are its children."""
    if tag in _NOT_TEXT:
        return
    children = properties.get("children")
    if tag in _BLOCKS and (text := _inline(children, 0)) and not text.isspace():
        _add_text(text, path, "children", leaves)
        return
    _add_leaves(children, (*path, "children"), "children", leaves)
    if isinstance(inner := properties.get("dangerouslySetInnerHTML"), dict):
        _add_leaves(inner.get("__html"), (*path, "html"), "html", leaves)


def _inline(children: Any, depth: int) -> str:
    """The text of a block's children, if there is text right in it."""
    match children:
        case str():
            return "" if children.startswith("$") and depth == 0 else children
        case ["$", str(tag), _, dict(properties), *_]:
            return "" if tag in _BLOCKS and depth == 0 else _inline(properties.get("children"), depth + 1)
        case list() if depth < MAX_DEPTH and (depth or any(isinstance(each, str) for each in children)):
            return "".join(_inline(each, depth + 1) for each in children)
    return ""


def _run(items: list, key: str) -> str:
    """The pieces of one paragraph, which editors cut where the style changes, put together; empty for other lists.

    A piece is named as such (Contentful, ProseMirror, Lexical, Portable Text), or is an object with a text and without
    a type among `children` (Slate).
    """
    if not any(_is_piece(item, key) for item in items):
        return ""
    parts: list[str] = []
    for item in items:
        if not isinstance(item, dict):
            continue
        if _is_piece(item, key):
            parts.append(next((item[name] for name in ("text", "value") if isinstance(item.get(name), str)), ""))
        else:
            inner: list = next((item[name] for name in _CHILDREN if isinstance(item.get(name), list)), [])
            parts.append(_run(inner, key) or " ")
    return "".join(parts)


def _is_piece(item: Any, key: str) -> bool:
    if not isinstance(item, dict) or not any(isinstance(item.get(name), str) for name in ("text", "value")):
        return False
    kinds = [item[name] for name in ("type", "nodeType", "_type", "object") if isinstance(item.get(name), str)]
    return any(kind in _LEAVES for kind in kinds) if kinds else key == "children"

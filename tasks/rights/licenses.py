"""The license of a page's own content, from links, metadata, JSON-LD and the sentences around them.

Precision is more important than recall: a license that the words around it do not tie to the page is not recorded as
the page's. Pages mention licenses of pictures, of software and of works that they quote, and some explain licenses.

Licenses are named by their SPDX identifiers. A license without a version is named by its family, such as `CC-BY-SA`,
which is not an SPDX identifier, since its version is unknown.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from resiliparse.extract import html2text
from resiliparse.parse.html import ElementNode

from gristmill.tasks.source_code.licenses import expression

if TYPE_CHECKING:
    from resiliparse.parse.html import HTMLTree


# ---- SPDX identifiers of the addresses and names by which pages state licenses

_CC = re.compile(
    r"creativecommons\.(?:org|net)/(?:licen[sc]es|publicdomain)/(?P<kind>[a-z+-]{2,20})"
    r"(?:/(?P<version>\d\.\d)(?:/(?P<port>[a-z]{2,4})(?![a-z]))?)?",
    re.I,
)
_GNU = re.compile(
    r"gnu\.org/(?:copyleft|licen[sc]es)/(?:old-licen[sc]es/)?(?P<name>fdl|gpl|lgpl|agpl)(?:-(?P<version>\d\.\d))?"
    r"(?![a-z]*-(?:faq|howto))",
    re.I,
)
_ADDRESSES = (
    (re.compile(r"nationalarchives\.gov\.uk/doc/open-government-licence/version/(\d)", re.I), "OGL-UK-{}.0"),
    (re.compile(r"opendatacommons\.org/licen[sc]es/odbl(?:/(\d))?", re.I), "ODbL-1.0"),
    (re.compile(r"opendatacommons\.org/licen[sc]es/by(?:/(\d))?", re.I), "ODC-By-1.0"),
    (re.compile(r"opendatacommons\.org/licen[sc]es/pddl(?:/(\d))?", re.I), "PDDL-1.0"),
    (re.compile(r"etalab\.gouv\.fr/licence-ouverte|github\.com/etalab/licence-ouverte", re.I), "etalab-2.0"),
    (re.compile(r"(?:opensource\.org|spdx\.org)/licen[sc]es/([A-Za-z0-9.+-]{2,40}?)(?:\.(?:php|html))?/?\Z"), "{}"),
    (re.compile(r"apache\.org/licen[sc]es/LICENSE-2\.0", re.I), "Apache-2.0"),
    (re.compile(r"unlicense\.org/?\Z", re.I), "Unlicense"),
)
# Words in the addresses of licenses of texts: a link to one of software is hardly ever about the page.
ADDRESS_WORDS = (
    *("creativecommons.", "gnu.org/copyleft", "gnu.org/licen", "open-government-licence", "opendatacommons.org"),
    "licence-ouverte",
)

_ELEMENTS = {"nc": "NC", "nd": "ND", "sa": "SA", "by": "BY"}
_ORDER = ("BY", "NC", "SA", "ND")  # as SPDX writes it: CC-BY-NC-SA, CC-BY-NC-ND
_SHORT = re.compile(
    r"\bCC(?:[ -](?P<kind>BY(?:[ -](?:NC|ND|SA)\b){0,3})(?:[ -]v?(?P<version>\d\.\d))?|0(?:[ -](?P<zero>1\.0))?)\b"
)
_LONG = re.compile(
    r"Creative\s+Commons(?:\s+Public)?\s*[:,-]?\s*(?P<kind>Attribution(?:[\s,/\u2013-]{1,4}"
    r"(?:Non[\s-]?Commercial|No[\s-]?Deriv\w{0,8}(?:\s+Works?)?|Share[\s-]?Alike)){0,3})"
    r"(?:\s+Public)?(?:\s*[,(]?\s*(?:Licen[sc]e\s+)?(?:v(?:ersion)?\.?\s*)?(?P<version>[1-4]\.\d))?",
    re.I,
)
_ZERO = re.compile(r"Creative\s+Commons\s+(?:Zero|CC0)|\bCC0\b|CC\s+Zero", re.I)
_FDL = re.compile(
    r"(?:GNU\s+Free\s+Documentation\s+Licen[sc]e|\bGFDL\b)(?:,?\s+v(?:ersion)?\.?|-)?(?:\s?(?P<version>1\.[123])"
    r"(?P<later>\+|,?\s+or\s+(?:any\s+)?later|-or-later)?)?",
    re.I,
)


def of_address(address: str) -> str | None:
    """The license at an address, such as `CC-BY-4.0` for creativecommons.org/licenses/by/4.0/; None for another one."""
    address = address[:2000]
    if match := _CC.search(address):
        return _creative_commons(match["kind"].lower(), match["version"], match["port"])
    if match := _GNU.search(address):
        name = match["name"].upper()
        name = "GFDL" if name == "FDL" else name
        return f"{name}-{match['version']}-only" if match["version"] else name
    for pattern, identifier in _ADDRESSES:
        if match := pattern.search(address):
            return _known(identifier.format(*match.groups()))
    return None


def of_words(text: str) -> str | None:
    """The license that a statement names, by its address or its usual name; None for none, or for several."""
    text = text[:2000]
    if address := of_address(text):
        return address
    names = {_of_kind(match["kind"], match["version"]) for match in _LONG.finditer(text)}
    names |= {_of_kind(match["kind"], match["version"]) for match in _SHORT.finditer(text) if match["kind"]}
    if _ZERO.search(text):
        names.add("CC0-1.0")
    for match in _FDL.finditer(text):
        end = "or-later" if match["later"] else "only"
        names.add(f"GFDL-{match['version']}-{end}" if match["version"] else "GFDL")
    # `CC BY` beside `Creative Commons Attribution 4.0` is the same license
    names = {name for name in names if not any(re.match(rf"{re.escape(name)}-\d", other) for other in names)}
    if len(names) > 1:
        return None
    return names.pop() if names else _known(text.strip()) if len(text) < 60 and " " not in text.strip() else None


def _of_kind(words: str, version: str | None) -> str:
    """The license of Creative Commons with these elements, in their short (`BY-NC`) or their long names."""
    squeezed = re.sub(r"[^a-z]", "", words.lower())
    if squeezed.startswith("by"):
        elements = re.findall("by|nc|nd|sa", squeezed)
        return _joined({each.upper() for each in elements}, version)
    long_names = {"NC": "noncommercial", "ND": "noderiv", "SA": "sharealike"}
    return _joined({"BY", *(short for short, long in long_names.items() if long in squeezed)}, version)


def _joined(parts: set[str], version: str | None) -> str:
    name = "-".join(["CC", *(each for each in _ORDER if each in parts)])
    return f"{name}-{version}" if version else name


def _creative_commons(kind: str, version: str | None, port: str | None) -> str | None:
    if kind == "zero":
        return "CC0-1.0"
    if kind == "mark":
        return "CC-PDM-1.0"
    if kind in ("publicdomain", "certification"):
        return "CC-PDDC"
    parts = {_ELEMENTS[each] for each in kind.split("-") if each in _ELEMENTS}
    if not parts or len(parts) != len(kind.split("-")):
        return None
    name = _joined(parts, version)
    ported = f"{name}-{port.upper()}" if port and version else ""
    if "BY" not in parts:  # the first licenses did without; SPDX has one of them
        return _known(name)
    return ported if ported and _known(ported) else name


@cache
def _known(identifier: str) -> str | None:
    """An identifier as SPDX writes it; None for one that it does not have."""
    return expression(identifier) if re.fullmatch(r"[A-Za-z0-9.+-]{2,60}", identifier) else None


# ---- whether a page states a license, and where

Scope = Literal["page", "part"]
PAGE: Scope = "page"
PART: Scope = "part"


class License(NamedTuple):
    """`id`: of SPDX, or a family without a version; `source`: header, link, meta, json-ld, rel, footer or text."""

    id: str
    scope: Scope
    source: str


# One of the first is in every page, in lower case, that states a license in a way that is read here, and one of the
# second, which takes longer to find out.
_ANY_OF = (b"licen", b"commons", b"copyleft", b"gfdl")
_WORDS = (
    *(b"creativecommons", b"creative commons", b"cc by", b"cc-by", b"cc0", b"gfdl", b"free documentation"),
    *(b'rel="license', b"rel=license", b"rel='license"),
    *(word.encode() for word in ADDRESS_WORDS if word != "creativecommons."),
)
_LINK_FIELD = re.compile(r"<([^<>]{1,2000})>((?:\s*;[^,;]{0,300}){1,10})")
_METAS = frozenset(
    {"dc.rights", "dcterms.rights", "dcterms.license", "dc.license", "dc.rights.license", "dc:rights", "license"}
    | {"dcterms.rights.license", "dcterms:license", "dcterms:rights", "copyright", "rights", "citation_license"}
)
# Things of schema.org that are the page itself, or its text.
_PAGES = frozenset(
    "WebPage Article NewsArticle BlogPosting ScholarlyArticle TechArticle Report CreativeWork LearningResource "
    "AboutPage ItemPage QAPage FAQPage HowTo MedicalWebPage MedicalScholarlyArticle SocialMediaPosting Chapter Book "
    "Blog LiveBlogPosting AnalysisNewsArticle OpinionNewsArticle ReviewNewsArticle Guide WebSite Course".split()
)
_MAX_NODES = 20_000  # of JSON-LD
_MAX_SCRIPTS = 100
_MAX_JSON = 2_000_000  # characters
_MAX_ANCHORS = 200  # links to licenses: of more only the last, in the footer, are looked at
_MAX_ANCESTORS = 40  # of a link that say what it is about
_MANY = 3  # different licenses on a page that is about licenses
_CONTEXT = 600  # characters of a block's text


def may_state_license(words: bytes, metas: bytes) -> bool:
    """Whether a page may state a license. `words`: the page as UTF-8 in lower case; `metas`: its `meta` elements."""
    if b"right" in metas and any(name in metas for name in (b"dc.right", b"dc:right", b"dcterms", b"copyright")):
        return True
    if not any(word in words for word in _ANY_OF):
        return False
    return any(word in words for word in _WORDS) or (b'"license"' in words and b"ld+json" in words)


def of_fields(headers: Iterable[Sequence[str]]) -> License | None:
    """The license that a `Link` header field with `rel=license` names (RFC 8288)."""
    for name, value in headers:
        if name == "link" and "license" in value:
            for match in _LINK_FIELD.finditer(value[:8000]):
                relation = re.search(r"rel\s*=\s*\"?([^\";]*)", match[2])
                if relation and "license" in relation[1].lower().split() and (identifier := of_address(match[1])):
                    return License(identifier, PAGE, "header")
    return None


def of_page(tree: "HTMLTree") -> License | None:
    """The license of a page, or else one of a part of it; None where none is stated, or several that disagree."""
    parts: list[License] = []
    for search in (_of_links, _of_metas, _of_json, _of_anchors, _of_sentences):
        stated = search(tree)
        of_whole = {each.id: each for each in stated if each.scope == PAGE}
        if chosen := _one(of_whole):
            return chosen
        if of_whole:
            return None  # they disagree
        parts += [each for each in stated if each.scope == PART]
    return next(iter(parts), None)


def _elements(tree: "HTMLTree", selector: str) -> "list[ElementNode]":
    # `values`, since iterating over the list itself takes time quadratic in its length
    return tree.document.query_selector_all(selector).values() if tree.document is not None else []


def _one(licenses: dict[str, License]) -> License | None:
    """The license that all of some name: the one with a version, where others name its family."""
    versioned = {
        name: each
        for name, each in licenses.items()
        if not any(re.match(rf"{re.escape(name)}-\d", o) for o in licenses)
    }
    return next(iter(versioned.values())) if len(versioned) == 1 else None


def _of_links(tree: "HTMLTree") -> list[License]:
    licenses = []
    for link in _elements(tree, "link[rel~=license i]"):
        if identifier := of_address(link.getattr("href") or ""):
            licenses.append(License(identifier, PAGE, "link"))
    return licenses


_META_TAGS = ", ".join(f'meta[{key}*="{word}" i]' for key in ("name", "property") for word in ("right", "license"))


def _of_metas(tree: "HTMLTree") -> list[License]:
    licenses = []
    for meta in _elements(tree, _META_TAGS):
        name = (meta.getattr("name") or meta.getattr("property") or "").strip().lower()
        if name in _METAS and (identifier := of_words(meta.getattr("content") or "")):
            licenses.append(License(identifier, PAGE, "meta"))
    return licenses


# ---- JSON-LD


def _of_json(tree: "HTMLTree") -> list[License]:
    licenses = []
    for script in _elements(tree, 'script[type="application/ld+json"]')[:_MAX_SCRIPTS]:
        text = script.text or ""
        if "license" not in text or len(text) > _MAX_JSON:
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            continue
        for node in _nodes(value):
            if identifier := _of_value(node.get("license")):
                types = node.get("@type")
                named = {each for each in (types if isinstance(types, list) else [types]) if isinstance(each, str)}
                licenses.append(License(identifier, PAGE if named & _PAGES else PART, "json-ld"))
    return licenses


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """The objects that are a page's top level: of lists, of `@graph`, and what a page is about (`mainEntity`)."""
    waiting, seen = [value], 0
    while waiting and seen < _MAX_NODES:
        each = waiting.pop()
        seen += 1
        if isinstance(each, list):
            waiting += reversed(each[:_MAX_NODES])
        elif isinstance(each, dict):
            yield each
            waiting += [each[key] for key in ("@graph", "mainEntity", "mainEntityOfPage") if key in each]


def _of_value(value: Any) -> str | None:
    if isinstance(value, list):
        names = {name for each in value[:9] if (name := _of_value(each))}
        return names.pop() if len(names) == 1 else None
    if isinstance(value, dict):
        value = value.get("url") or value.get("@id") or value.get("name")
    return of_words(value) if isinstance(value, str) else None


# ---- links and the sentences around them

_BLOCKS = frozenset(
    "p div li td th dd dt footer section article aside header main blockquote figure figcaption center body address "
    "table ul ol form details".split()
)
_PICTURES = frozenset({"figure", "figcaption", "picture"})
_PICTURE_NAME = re.compile(
    r"caption|thumb|gallery|photo|image|slide|lightbox|credit|media(?!wiki)|comment|reply|related|widget-(?:flickr|insta)",
    re.I,
)
_FOOT_NAME = re.compile(
    r"foot|colophon|licen[sc]e|copyright|legal|rights|\bcc\b|creative-?commons|site-?info|bottom", re.I
)
_SUBJECTS = (
    r"(?:work|page|site|website|web\s?site|wiki|article|blog|post|content|contents|text|texts|material|materials|"
    r"document|documents|documentation|book|publication|tutorial|lesson|lecture|course|paper|story|stories|entry|chapter|"
    r"resource|handbook|manual|essay|essays|guide|report|journal|information|weblog|contributions|posts|articles|pages|writings?|"
    r"howto|faq|translation|\u0153uvre|obra|werk|opera|inhalt|contenu|contenido)"
)
_VERBS = (
    r"(?:licen[sc]ed|available|released|published|distributed|shared|covered|protected|provided|offered|placed|"
    r"made\s+available|is\s+under|are\s+under|subject\s+to|lizenziert|bajo\s+una?|sous\s+licence|steht\s+unter|"
    r"distribuit|disponib|mis\s+\u00e0\s+disposition)"
)
_OF_PAGE = re.compile(
    rf"\b{_SUBJECTS}\b[^.!?]{{0,160}}\b{_VERBS}|"
    r"(?:except|unless|where)\s+(?:where\s+|as\s+)?otherwise\s+(?:noted|stated|specified|indicated)|"
    r"\b(?:all|our|my)\s+(?:original\s+)?(?:content|text|posts|articles|work|writing)\b|"
    r"^(?:licen[sc]ed|released|published|available|text)\s+(?:is\s+)?(?:available\s+)?under\b|"
    r"permission\s+is\s+granted\s+to\s+copy,\s+distribute\s+and/or\s+modify\s+this",
    re.I,
)
_SENTENCE = re.compile(r"[.!?][\"')]?\s+(?=[A-Z\d\"'(\u00a9])|[|\u00b7\u2022]|\u00a9")
_CLAUSE = re.compile(r"[,;:(]\s*(?:and|while|but|und|et|y|e)?\s+")
_OF_PART = re.compile(
    r"\b(?:photos?|photographs?|photography|photographers?|images?|pictures?|icons?|logos?|illustrations?|graphics?|"
    r"drawings?|artwork|videos?|clip\s?art|music|songs?|soundtrack|audio|sounds?|flickr|wikimedia|unsplash|screenshots?|"
    r"figures?|maps?|courtesy|software|source\s+code|code|program|plugins?|plug-ins?|themes?|templates?|fonts?|packages?|"
    r"librar(?:y|ies)|apps?|applications?|extensions?|datasets?|data\s?sets?|databases?|data|scripts?|games?|models?|"
    r"designed\s+by|powered\s+by|bilder|foto|fotos|bild|imagen|im\u00e1genes|immagini)\b",
    re.I,
)


_ANCHORS = ", ".join(f'a[href*="{word}" i]' for word in ADDRESS_WORDS)


def _of_anchors(tree: "HTMLTree") -> list[License]:
    """Licenses by links in the text, of the page or of parts, by the words around each."""
    anchors = [
        (anchor, identifier)
        for anchor in _elements(tree, _ANCHORS)
        if (identifier := of_address(anchor.getattr("href") or ""))
    ][-_MAX_ANCHORS:]
    is_about_licenses = len({identifier for _, identifier in anchors}) > _MANY
    licenses = []
    for anchor, identifier in anchors:
        is_rel = "license" in (anchor.getattr("rel") or "").lower().split()
        scope, source = _scope(anchor, is_rel)
        if scope == PAGE and is_about_licenses and source != "footer":
            continue
        if scope:
            licenses.append(License(identifier, scope, "rel" if is_rel else source))
    return licenses


def _scope(anchor: "ElementNode", is_rel: bool) -> tuple[Scope | None, str]:
    """What a link to a license is about, by the elements that it is in and the words of its block."""
    in_foot, block, node = False, None, anchor.parent
    for _ in range(_MAX_ANCESTORS):
        if not isinstance(node, ElementNode) or node.tag in ("body", "html"):
            break
        names = f"{node.getattr('class') or ''} {node.getattr('id') or ''}"
        if node.tag in _PICTURES or _PICTURE_NAME.search(names):
            return PART, "text"
        in_foot = in_foot or node.tag == "footer" or bool(_FOOT_NAME.search(names))
        if block is None and node.tag in _BLOCKS and len(_text(node)) > 25:
            block = node
        node = node.parent
    source = "footer" if in_foot else "text"
    scope = _scope_of(_until(block, anchor))
    return scope or (PAGE if is_rel or in_foot else None), source


def _scope_of(words: str) -> Scope | None:
    """What a license is for that comes after these words: by the subject of its clause, else of its sentence."""
    sentence = _SENTENCE.split(words)[-1][-_CONTEXT:]
    for clause in (_CLAUSE.split(sentence)[-1], sentence):
        if match := _OF_PAGE.search(clause):
            # `icons by Ann, licensed under`: the subject is in the clause before
            before = clause[: match.start()] if match.start() else sentence[: -len(clause)]
            return PART if _OF_PART.search(before) else PAGE
        if _OF_PART.search(clause):
            return PART
    return None


def _text(node: "ElementNode | None") -> str:
    return " ".join((node.text or "").split()) if node is not None else ""


def _until(block: "ElementNode | None", anchor: "ElementNode") -> str:
    """The words of a block up to the end of a link."""
    text, own = _text(block), _text(anchor)
    place = text.rfind(own) if own else -1
    return text[: place + len(own)] if place >= 0 else text


# ---- sentences without a link

_NAME = re.compile(
    r"Creative\s+Commons\s+(?:Public\s+)?(?:Attribution|Zero|CC0)|\bCC[ -]BY\b|\bCC0\b|\bGFDL\b|"
    r"GNU\s+Free\s+Documentation\s+Licen",
    re.I,
)


def _of_sentences(tree: "HTMLTree") -> list[License]:
    """Licenses that a sentence about the page names."""
    text = html2text.extract_plain_text(tree, main_content=False, alt_texts=False)
    licenses = []
    for match in list(_NAME.finditer(text))[-_MAX_ANCHORS:]:
        begin = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", match.end())
        words = text[max(begin, match.start() - _CONTEXT) : match.start()]
        named = text[match.start() : end if end >= 0 else len(text)][:200]
        if _scope_of(words) == PAGE and (identifier := of_words(_SENTENCE.split(named)[0])):
            licenses.append(License(identifier, PAGE, "text"))
    return licenses

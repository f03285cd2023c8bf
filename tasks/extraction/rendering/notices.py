"""Notices on cookies. Apart, since words decide here: a short article has fewer of them than the banner above it."""

import re

import numpy as np

from gristmill.tasks.extraction.rendering.source import Source
from gristmill.tasks.extraction.vocabulary import HEADING, WORDS, Page

_CONSENT = np.uint64(1 << [name for name, _ in WORDS].index("consent"))
# What the name of a notice says besides, or the name of the software that shows it: `cookies` and `privacy` alone are
# also names of chapters.
_NAME = re.compile(
    r"(?i)banner|bar(?![a-z])|notice|notif|consent|popup|pop-up|modal|overlay|law|dialog|alert|message|msg|warning|info|"
    r"box|layer|wall|hint|disclaimer|container|wrapper|accept|window|manager|compliance|prompt|bottom|sticky|fixed|"
    r"gdpr|ccpa|onetrust|cookiebot|cc-|cky-|cmp|klaro|iubenda|termly|osano|borlabs"
)
# A notice has no more words; an article has a block that is no heading and has at least so many bytes.
MAX_NOTICE_WORDS, MIN_ARTICLE_BYTES = 250, 30
# What notices speak of, in the languages that are the most frequent on the web: cookies, that they are used or that
# there is a policy on them, consent, privacy, the data of persons, and the site. A notice speaks of two of these: a
# class `cookie` may be that of a recipe, which speaks of cookies alone.
_SUBJECTS = tuple(
    re.compile(subject)
    for subject in (
        r"cookie|куки|クッキー",
        r"(?:\buse[sd]?|\busing|utili[sz]\w*|\busa\w*|verwende\w*|nutz\w+|setz\w+|gebruik\w*|używa\w*|bruker|använder|"
        r"bruger|käyt\w+|использу\w+)\W+(?:\w+\W+){0,2}(?:cookie|куки)|(?:使用|利用)[^。]{0,9}(?:cookie|クッキー)|"
        r"(?:cookie|クッキー)を(?:使用|利用)|"
        r"cookies?[ -](?:policy|settings|preferences|notice|richtlinie|einstellungen)",
        r"consent|\baccept|\bagree|einwillig|zustimm|akzeptier|einverstanden|d'accord|acepta|acconsent|accett|aceita|"
        r"toestemming|akkoord|zgod|akceptuj|souhlas|hyväksy|samtyck|соглас|принима|同意|接受|동의",
        r"privacy|privatsphäre|datenschutz|confidentialit|vie privée|privacidad|riservatezza|prywatno|конфиденц|隐私|"
        r"プライバシー|gdpr|dsgvo|rgpd|ccpa",
        r"our partners|third part|unsere partner|nos partenaires|nuestros socios|nostri partner|nossos parceiros|"
        r"personal(?:i[sz]ed?)? (?:data|content|ads)|personenbezogen|données personnelles|datos personales|"
        r"dati personali|dados pessoais|персональн",
        r"(?:our|this) (?:web ?)?site|(?:unsere|diese) (?:website|webseite)|your (?:device|browser)|"
        r"our traffic|browsing experience",
    )
)


def notices(source: Source, kept: np.ndarray, words: np.ndarray) -> np.ndarray:
    """The blocks (bool) of notices on cookies: elements whose class, id and role say so, of at most MAX_NOTICE_WORDS
    words, that speak of cookies or consent. None where no article is left besides.

    kept: bool, words: float32, of each block.
    """
    page = source.page
    blocks, nodes = page.blocks, page.nodes
    marked = np.zeros(len(kept), np.bool_)
    if not np.bitwise_or.reduce(blocks.bits[kept]) & _CONSENT:
        return marked
    last_tag = -1
    for node in np.flatnonzero(nodes.bits & _CONSENT).tolist():
        first, last = int(nodes.first[node]), int(nodes.last[node])
        if first <= last_tag:
            continue
        inside = slice(int(np.searchsorted(blocks.after, first)), int(np.searchsorted(blocks.before, last, "right")))
        if not kept[inside].any() or words[inside].sum() > MAX_NOTICE_WORDS:
            continue
        attributes = source.attributes(first)
        names = " ".join(attributes.get(name, "") for name in ("class", "id", "role"))
        if _NAME.search(names) and _speaks_of_consent(page, inside):
            marked[inside] = True
            last_tag = last
    article = kept & ~marked & (blocks.kind != HEADING) & (blocks.end - blocks.begin >= MIN_ARTICLE_BYTES)
    return marked if article.any() else np.zeros_like(marked)


def _speaks_of_consent(page: Page, inside: slice) -> bool:
    spans = zip(page.blocks.begin[inside].tolist(), page.blocks.end[inside].tolist(), strict=True)
    text = b"\n".join([page.text[begin:end].tobytes() for begin, end in spans]).decode("utf-8", "replace").lower()
    return sum(bool(subject.search(text)) for subject in _SUBJECTS) > 1

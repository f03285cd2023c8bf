"""Controls of a page that are text: the way to it, numbers of its parts, `Reply` below a comment, `Copy` above code.
Apart, since names and whole words decide here: on a short page the classifier takes them for its text."""

import re

import numpy as np

from gristmill.tasks.extraction.rendering.source import Source
from gristmill.tasks.extraction.rendering.whole import CODE, Units
from gristmill.tasks.extraction.vocabulary import AROUND, HEADING, WORDS

_NAMES = [*(name for name, _ in WORDS), *(f"<{name}>" for name in AROUND)]
_COMMENT, _PATH, _PAGER, _BUTTON = (
    np.uint64(1 << _NAMES.index(name)) for name in ("comment", "navigation", "pager", "<button>")
)
_CLASS = re.compile(r"(?i)bread-?crumb|pagination|page-?navi|page-?numbers|(?<![a-z])pager(?![a-z])")
# A way or the numbers of pages have no more words, the name of an action has few.
_MAX_WORDS, _FEW = 40, 3
_ACTION = re.compile(
    r"(?i)reply|reply to this|report|like|quote|permalink|antworten|melden|gefällt mir|zitieren|répondre|signaler|"
    r"j'aime|responder|denunciar|me gusta|citar|rispondi|segnala|mi piace|beantwoorden|reageer|odpowiedz|cytuj|"
    r"ответить|цитировать|пожаловаться|回复|回覆|举报|返信|답글|yanıtla|odpovědět|svara|svar|vastaa|trả lời|balas"
)


# A link past the menu, for readers who use a keyboard.
_SKIP = re.compile(
    r"(?i)(?:skip|jump|go|direct(?:ly)?)(?: directly)? to (?:the )?(?:main |primary )?"
    r"(?:content|text|navigation|menu|article|footer|search)|"
    r"skip (?:navigation|nav|links?)|(?:direkt |weiter )?zum (?:haupt)?inhalt(?: springen| wechseln)?|"
    r"(?:aller|passer|accéder)(?: directement)? au (?:contenu|menu)(?: principal)?|"
    r"(?:saltar|ir|pular)(?: directamente)? (?:al|para o|ao) "
    r"(?:contenido|conteúdo)(?: principal)?|vai al contenuto(?: principale)?|"
    r"(?:direct )?naar (?:de )?(?:hoofd)?inhoud(?: gaan| springen)?|"
    r"przejdź do (?:głównej )?(?:treści|zawartości)|перейти к (?:основному )?(?:содержанию|содержимому|контенту)|"
    r"(?:gå|hoppa|hopp|spring) (?:direkt )?(?:til|till|över til|over til) "
    r"(?:hoved|hovud|huvud)?(?:indhold|innhold|innehåll)(?:et)?|"
    r"跳(?:至|到|转到)(?:主要)?(?:内容|內容|正文)"
)
_SKIP_WORDS, _FIRST = 7, 20  # words, and short blocks of a page that are looked at


def controls(source: Source, together: Units, kept: np.ndarray, words: np.ndarray) -> np.ndarray:
    """The kept blocks (bool) that are controls: breadcrumbs and pagination by their class or id, a block that is the
    name of an action in an element of comments, buttons right beside code; no headings, and none where nothing else is
    left.

    kept: bool, words: float32, of each block.
    """
    page = source.page
    blocks, nodes = page.blocks, page.nodes
    out = np.zeros(len(kept), np.bool_)
    first = np.flatnonzero(kept & (words <= _SKIP_WORDS) & (blocks.kind != HEADING))[:_FIRST]
    for block in first.tolist():
        text = source.text_of(page.text[blocks.begin[block] : blocks.end[block]].tobytes())
        out[block] = _SKIP.fullmatch(text.strip(" .>»↓")) is not None
    around = np.bitwise_or.reduce(blocks.bits[kept])
    if not around & (_PATH | _PAGER | _COMMENT | _BUTTON):
        return out if (kept & ~out).any() else np.zeros_like(out)
    if around & (_PATH | _PAGER):
        named = np.flatnonzero(nodes.bits & (_PATH | _PAGER))
        begin = np.searchsorted(blocks.after, nodes.first[named])
        end = np.maximum(begin, np.searchsorted(blocks.before, nodes.last[named], "right"))
        count, size = (np.append(0, np.cumsum(each, dtype=np.float64)) for each in (kept, words))
        for i in np.flatnonzero((count[end] > count[begin]) & (size[end] - size[begin] <= _MAX_WORDS)).tolist():
            tag = int(nodes.first[named[i]])
            if _CLASS.search(source.classes(tag)) or _CLASS.search(source.attribute(tag, "id") or ""):
                out[begin[i] : end[i]] = True
    short = kept & (words <= _FEW) & (together.unit == 0)
    for block in np.flatnonzero(short & (blocks.bits & _COMMENT != 0)).tolist() if around & _COMMENT else ():
        text = source.text_of(page.text[blocks.begin[block] : blocks.end[block]].tobytes())
        out[block] |= _ACTION.fullmatch(text) is not None
    for block in np.flatnonzero(short & (blocks.bits & _BUTTON != 0)).tolist() if around & _BUTTON else ():
        out[block] |= any(
            0 <= place < len(kept) and together.unit[place] > 0 and together.wholes[together.unit[place]].kind == CODE
            for place in (block - 1, block + 1, block + 2)
        )
    out &= kept & (together.unit == 0) & (blocks.kind != HEADING)
    return out if (kept & ~out).any() else np.zeros_like(out)

"""PDF documents whose text is known, beside peers: made here by typst and by Chromium in six layouts and eight scripts.

    python -m pytest -m bench -s tests/benchmarks/test_pdf.py

Truth is the sequence of words that was given to the renderer, running heads left out. `F1` counts words, `order` is the
longest common subsequence of words, as a share of the longer side. Peers are pdfminer.six, pypdf and pypdfium2.
"""

import random
import shutil
import subprocess
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gristmill.tasks.pdf.document import read

pytestmark = pytest.mark.bench

WORDS = {
    "Latin": "mill river forest wheel miller stone water village bread harvest morning evening granary considerable "
    "transportation neighbourhood machinery measurement agricultural information because through between although "
    "administration development temperature production community the a of in and with under over from".split(),
    "Cyrillic": "мельница река лес колесо мельник камень вода деревня хлеб урожай утро вечер зерно машина измерение "
    "сельское информация потому через между хотя управление развитие температура производство "
    "община и в на под".split(),
    "CJK": list("水車小屋川森石村麦朝夕人山空雨風火土木金田畑道橋春夏秋冬東西南北上下左右大小中外"),
    "Arabic": "طاحونة نهر غابة عجلة طحان حجر ماء قرية خبز حصاد صباح مساء حبوب آلة قياس زراعة معلومات بسبب بين إدارة "
    "تطوير حرارة إنتاج مجتمع في من على تحت".split(),
    "Devanagari": "चक्की नदी जंगल पहिया पत्थर पानी गाँव रोटी फसल सुबह शाम अनाज मशीन माप खेती सूचना क्योंकि बीच प्रशासन "
    "विकास तापमान उत्पादन समुदाय में पर से और".split(),
    "Hebrew": "טחנה נהר יער גלגל טוחן אבן מים כפר לחם קציר בוקר ערב תבואה מכונה מדידה חקלאות מידע בגלל בין מנהל "
    "פיתוח חום ייצור קהילה של את על עם מן".split(),
    "Bengali": "নদী বন চাকা পাথর জল গ্রাম রুটি ফসল সকাল সন্ধ্যা শস্য যন্ত্র পরিমাপ কৃষি তথ্য কারণ মধ্যে প্রশাসন উন্নয়ন "
    "তাপমাত্রা উৎপাদন সম্প্রদায় এবং থেকে উপর".split(),
    "Tamil": "ஆறு காடு சக்கரம் கல் நீர் கிராமம் ரொட்டி அறுவடை காலை மாலை தானியம் இயந்திரம் அளவு விவசாயம் தகவல் ஏனெனில் "
    "இடையே நிர்வாகம் வளர்ச்சி வெப்பநிலை உற்பத்தி சமூகம் மற்றும் மேல்".split(),
}
LANGUAGES = {"Latin": "en", "Cyrillic": "ru", "CJK": "ja", "Arabic": "ar", "Devanagari": "hi"}
LANGUAGES |= {"Hebrew": "he", "Bengali": "bn", "Tamil": "ta"}
FONTS = {"CJK": "Noto Sans CJK JP"} | {
    script: f"Noto Sans {script}" for script in ("Arabic", "Devanagari", "Hebrew", "Bengali", "Tamil")
}
LAYOUTS = ("one column", "two columns", "running heads", "tables", "notes", "lists and code")


class Text:
    """Text of a script, and the words that were given out so far, in order."""

    def __init__(self, script: str, seed: int) -> None:
        self.script, self.random, self.given = script, random.Random(f"{script} {seed}"), []

    def words(self, count: int) -> str:
        chosen = self.random.choices(WORDS[self.script], k=count)
        self.given += chosen
        return ("" if self.script == "CJK" else " ").join(chosen)

    def sentence(self) -> str:
        end = {"CJK": "。", "Devanagari": "।", "Bengali": "।"}.get(self.script, ".")
        return self.words(self.random.randint(6, 22)) + end

    def paragraph(self) -> str:
        return ("" if self.script == "CJK" else " ").join(self.sentence() for _ in range(self.random.randint(3, 7)))


def as_typst(layout: str, text: Text) -> str:
    font = f'"{FONTS.get(text.script, "Noto Serif")}"'
    columns = 2 if layout == "two columns" else 1
    head = ', header: [A running head #h(1fr) Of mills], numbering: "1"' if layout == "running heads" else ""
    hyphenate = "true" if text.script == "Latin" else "false"
    parts = [
        f'#set page(paper: "a4", columns: {columns}{head})\n#set par(justify: true)\n'
        f'#set text(lang: "{LANGUAGES[text.script]}", font: {font}, size: 10pt, hyphenate: {hyphenate})'
    ]
    for section in range(4):
        parts.append("= " + text.words(3))
        parts += [text.paragraph() for _ in range(3)]
        if layout == "tables":
            cells = ", ".join(f"[{text.words(1)}]" for _ in range(12))
            parts.append(f"#table(columns: 3, stroke: {'none' if section % 2 else '1pt'}, {cells})")
        if layout == "notes":
            # a note stands at the foot of its page: its words count, their order is judged where they stand here
            parts.append(f"{text.sentence()}#footnote[{text.sentence()}]")
        if layout == "lists and code":
            parts.append("\n".join(f"- {text.sentence()}" for _ in range(4)))
            parts.append("\n".join(f"+ {text.sentence()}" for _ in range(3)))
    return "\n\n".join(parts)


def as_html(layout: str, text: Text) -> str:
    style = "column-count: 2;" if layout == "two columns" else ""
    direction = "rtl" if text.script in ("Arabic", "Hebrew") else "ltr"
    parts = []
    for _ in range(4):
        parts.append(f"<h2>{text.words(3)}</h2>")
        parts += [f"<p>{text.paragraph()}</p>" for _ in range(3)]
        if layout == "tables":
            rows = "".join("<tr>" + "".join(f"<td>{text.words(1)}</td>" for _ in range(3)) + "</tr>" for _ in range(4))
            parts.append(f"<table border=1>{rows}</table>")
        if layout == "notes":
            parts.append(f"<p style='font-size: 70%'>{text.sentence()}</p>")
        if layout == "lists and code":
            parts.append("<ul>" + "".join(f"<li>{text.sentence()}</li>" for _ in range(4)) + "</ul>")
    lang = LANGUAGES[text.script]
    return (
        f"<html lang={lang} dir={direction}><meta charset=utf-8><style>body {{ text-align: justify; "
        f"font-family: '{FONTS.get(text.script, 'Noto Serif')}'; hyphens: auto }}</style><body>"
        f"<div style='{style}'>{''.join(parts)}</div></body></html>"
    )


def by_typst(folder: Path, layout: str, text: Text) -> bytes:
    typst = pytest.importorskip("typst")
    source = folder / "page.typ"
    source.write_text(as_typst(layout, text))
    return typst.compile(str(source))


def by_chromium(folder: Path, layout: str, text: Text) -> bytes:
    program = shutil.which("chromium") or pytest.skip("needs chromium")
    source, made = folder / "page.html", folder / "page.pdf"
    source.write_text(as_html(layout, text))
    heads = [] if layout == "running heads" else ["--no-pdf-header-footer"]
    subprocess.run(
        [program, "--headless", "--no-sandbox", "--disable-gpu", *heads, f"--print-to-pdf={made}", str(source)],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return made.read_bytes()


def tokens(text: str, script: str) -> list[str]:
    text = unicodedata.normalize("NFKC", text)
    if script == "CJK":
        return [c for c in text if "\u2e80" <= c <= "\U0003ffff" and c.isalnum()]
    words = ("".join(c for c in word if c.isalnum() or unicodedata.category(c)[0] == "M") for word in text.split())
    return [word for word in words if word]


def f1(found: Sequence[str], truth: Sequence[str]) -> float:
    shared = (Counter(found) & Counter(truth)).total()
    return 2 * shared / (len(found) + len(truth)) if shared else 0.0


def order(found: Sequence[str], truth: Sequence[str]) -> float:
    """The longest common subsequence, as a share of the longer side (bit-parallel: Hyyrö 2004)."""
    at: dict[str, int] = {}
    for k, word in enumerate(truth):
        at[word] = at.get(word, 0) | 1 << k
    every = (1 << len(truth)) - 1
    state = every
    for word in found:
        both = state & at.get(word, 0)
        state = ((state + both) | (state - both)) & every
    return (len(truth) - state.bit_count()) / max(len(found), len(truth), 1)


def ours(data: bytes) -> str:
    return read(data, markdown=False).get("text", "")


def by_pdfminer(data: bytes) -> str:
    import io

    from pdfminer.high_level import extract_text

    return extract_text(io.BytesIO(data))


def by_pypdf(data: bytes) -> str:
    import io

    from pypdf import PdfReader

    return "\n".join(page.extract_text() for page in PdfReader(io.BytesIO(data)).pages)


def by_pdfium(data: bytes) -> str:
    import pypdfium2

    document = pypdfium2.PdfDocument(data)
    return "\n".join(document[k].get_textpage().get_text_range() for k in range(len(document)))


ENGINES: dict[str, Callable[[bytes], str]] = {
    "ours": ours,
    "pypdfium2": by_pdfium,
    "pdfminer": by_pdfminer,
    "pypdf": by_pypdf,
}


@pytest.mark.parametrize(("renderer", "seed"), [(by_typst, 0), (by_chromium, 0), (by_typst, 1)])
def test_words_and_their_order_beside_peers(tmp_path, renderer, seed):
    for name in ("pdfminer", "pypdf"):
        pytest.importorskip(name)
    scores: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    seconds: Counter[str] = Counter()
    pages = 0
    for script in WORDS:
        for layout in LAYOUTS:
            text = Text(script, seed)
            data = renderer(tmp_path, layout, text)
            truth = tokens(" ".join(text.given), script)
            pages += read(data, markdown=False)["pdf_pages"]
            for name, engine in ENGINES.items():
                begin = time.perf_counter()
                found = tokens(engine(data), script)
                seconds[name] += time.perf_counter() - begin
                for key in (("script", script), ("layout", layout), ("all", "all")):
                    scores.setdefault(key, {}).setdefault(name, []).append((f1(found, truth), order(found, truth)))
    print(f"\n{renderer.__name__}, seed {seed}: {pages} pages; words F1 / order")
    print(f"{'':16}" + "".join(f"{name:>16}" for name in ENGINES))
    means = {}
    for key, by_engine in scores.items():
        means[key] = {n: [sum(p[i] for p in pairs) / len(pairs) for i in (0, 1)] for n, pairs in by_engine.items()}
        print(f"{key[1]:16}" + "".join(f"{a:>9.3f} {b:.3f} " for a, b in (means[key][name] for name in ENGINES)))
    print(f"{'pages a second':16}" + "".join(f"{pages / seconds[name]:>16.0f}" for name in ENGINES))
    for script in WORDS:
        for peer in ENGINES:
            for ours, theirs in zip(means["script", script]["ours"], means["script", script][peer], strict=True):
                assert ours >= theirs - 0.002, (script, peer)


YIDDISH = "יעדער מענטש װערט געבױרן פֿרײַ און גלײַך אין כּבֿוד און רעכט די מיל דרײט זיך אַ גאַנצן טאָג"
TAMIL = "மில்லில் கோதுமை அரைக்கிறார்கள் நீர் கொடுக்கும் ஊர் சக்கரம் கல் கிராமம் காலை மாலை மற்றும்"


def test_letters_whose_marks_are_placed_by_themselves(tmp_path):
    """Chromium draws Hebrew letters with points as one, LibreOffice goes back to place the marks of Tamil letters."""
    for name, text, font in (("yi", YIDDISH, "Noto Serif Hebrew"), ("ta", TAMIL, "Noto Serif Tamil")):
        direction = "rtl" if name == "yi" else "ltr"
        source = tmp_path / f"{name}.html"
        source.write_text(
            f"<html lang={name} dir={direction}><meta charset=utf-8><body style=\"font-family: '{font}'\">"
            f"<h1>1</h1><p>{text}</p><p>{text}</p></body></html>"
        )
        program = shutil.which("chromium" if name == "yi" else "soffice") or pytest.skip("needs chromium, soffice")
        made = tmp_path / f"{name}.pdf"
        if name == "yi":
            flags = ("--no-sandbox", "--disable-gpu", "--no-pdf-header-footer", f"--print-to-pdf={made}")
        else:
            flags = ("--convert-to", "pdf:writer_web_pdf_Export", "--outdir", str(tmp_path))
        subprocess.run([program, "--headless", *flags, str(source)], check=True, capture_output=True, timeout=120)
        found, truth = tokens(read(made.read_bytes(), False)["text"], name), tokens(f"1 {text} {text}", name)
        print(f"\n{name}: words F1 {f1(found, truth):.3f}")
        assert f1(found, truth) >= 0.95

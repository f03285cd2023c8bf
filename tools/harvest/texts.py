"""The texts of documents, from words whose frequencies fall as in a language (Zipf), word by word from a hash;
and words of each language: those that hold sentences together and those that carry their subject."""

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tools.harvest.pages import LANGUAGES, Pages, draw, keyed

# Code: (function words, content words), most frequent first.
WORDS = {
    "en": (
        "the of and to a in that is for it with as was on be by at this have from or are but not they which an had",
        "time life case lot business member minute others girl foot use heart police season paper need image movie "
        "kitchen forest give bring speak send drive left heard working turning high late free difficult wrong",
    ),
    "de": (
        "die der und in zu den das nicht von sie ist des sich mit dem dass er es ein ich auf so eine auch als an",
        "Zeit Tag Haus Straße Nacht Gesellschaft Preis Verein Tür Berg Sonne Herbst Beispiel Bürger machen stehen "
        "bringen lesen setzen entsprechen gesehen geblieben gut weit leicht frei ganze neuen heute vielleicht",
    ),
    "fr": (
        "de la le et les des en un une du que est pour qui dans a par plus pas au sur ne se ce il sont avec son ou",
        "temps jour maison fois problème entreprise école état président porte montagne soleil soir voix esprit "
        "l'état dire donner rester écrire vivre répondre vu vieux premier important général dernière beaucoup",
    ),
    "es": (
        "de la que el en y a los se del las un por con no una su para es al lo como más o pero sus le ha me si sin",
        "año hombre ciudad historia dinero resultado economía hermana jardín bosque invierno tarde luz cabeza "
        "educación atención sociedad venir poner entender seguir entrar dicho llegado viejo primero económico",
    ),
    "pl": (
        "w i na z się do nie to jest że o jak po od za przez co ale czy tym dla są tego przy już był tylko jego może",
        "czas życie ręka chwila pieniądze język polityka dyrektor przyjaciel rzeka chleb zima miesiąc pociąg grupa "
        "uniwersytet widzieć przyjść wierzyć pisać pokazać został powstał mały pierwszy narodowy potrzebny sam dużo",
    ),
    "ru": (
        "и в не на я что он с как это по но они мы она из у за вы так же от для о его к до было бы был а все то ее",
        "время день часть история слово проект директор мать мост мельница осень ночь взгляд право решение область "
        "прийти говорить писать выйти имел пришел большой старый европейский важный новая русская всегда поэтому",
    ),
    "ar": (
        "في من على إلى أن عن التي الذي مع هذا هذه كان لا ما بعد كل قد بين أو كما لم قبل ذلك حيث عند هو هي كانت حتى",
        "الوقت الحياة البيت المكان الحرب الكتاب الفكرة السياسة المدير الأخت الحديقة الجبل المطر الصيف الشهر السيارة "
        "الحق المستوى امرأة بيت شهر يقول يريد يبقى يفهم قال عرف وضع ترك قرأ دخل جديد أول وطني ممكن صغيرة مهمة دائما",
    ),
    "ko": (
        "그 이 저 것 수 등 및 더 또 그리고 그러나 하지만 때문에 위해 대한 대해 있는 있다 없는 없다 한다 하는 하고",
        "시간이 사람들이 하루가 물을 장소에서 시장에서 학교에 사업을 국가의 경제가 어머니가 문을 숲에 밀가루를 "
        "가을이 저녁에는 거리를 목소리로 권리를 대학교에서 가능성이 왔다 주었다 썼다 시작했다 생각한다 새로운 젊은",
    ),
    "ja": (
        "の は を に が と で も た な て から まで より へ や という です ます した ている これ それ その この ある",
        "時間 世界 家族 部分 歴史 価格 言葉 研究 経済 兄弟 扉 川 小麦粉 雨 朝 夜 声 頭 社会 決定 機械 音楽 作る 取る "
        "残る 生きる 始める 思う 行った 書いた 始めた 使った 良い 長い 国際的な 経済的な 必要な 時々 多く システム",
    ),
    "zh": (
        "的 了 在 是 和 有 不 这 也 就 都 而 及 与 对 为 以 于 从 到 被 把 将 还 又 很 更 最 但 因为 所以 如果 可以",
        "时间 世界 今天 水 地方 公司 学校 例子 研究 成员 母亲 花园 桥 面粉 下雨 春天 夜里 道路 光 数量 水平 决定 "
        "北京 照片 文化 去 找到 留下 活 失去 使用 提高 新 年轻 第一 公共 一般 总是 几乎 许多 系统 数据 资源 作用",
    ),
    "th": (
        "ที่ และ ใน ของ เป็น ได้ ไม่ มี ให้ ว่า จะ การ ความ กับ จาก นี้ ไป มา แต่ ก็ หรือ โดย ยัง อยู่ แล้ว เมื่อ",
        "เวลา โลก วันนี้ งาน ส่วน สงคราม บริษัท หนังสือ ความคิด วิจัย เศรษฐกิจ พ่อ พี่น้อง สวน สะพาน โรงสี ขนมปัง "
        "ฤดูร้อน เย็น ถนน รถไฟ สิทธิ กลุ่ม มหาวิทยาลัย ตัดสินใจ เอา รอ ออก จบ รู้สึก เล็ก ยาว สูง ยาก จำเป็น",
    ),
}

# Comma and full stop where they are not the English ones.
POINTS = {"ar": ("،", "."), "ja": ("、", "。"), "zh": ("，", "。"), "th": (" ", " ")}
# Languages that put no spaces between words: there sets of word 5-grams mean nothing.
UNSPACED = frozenset(("ja", "zh", "th"))

_VOCABULARY = 10_000  # words of a language
_TABLE = 1 << 16
_FEW = 200  # new words of a thousand, and the next ones have a piece more
_SENTENCE, _CLAUSE, _PARAGRAPH = 15, 12, 4  # words, words, sentences, in the mean
_TEMPLATE = 0.3  # of the documents, how many keep words of their host's template
_HEAD, _FOOT = 8, 16  # words of a template
_UNSPACED = ("zh",)
_MARKS = ("", ",", ".", ".\n")  # behind a word: none, of a clause, a sentence, a paragraph


@cache
def words() -> tuple[pa.Array, np.ndarray]:
    """All forms of the words of all languages, and for each language the words that the numbers below _TABLE stand for,
    by their frequency: int64 (languages, _TABLE)."""
    forms: list[str] = []
    tables = []
    for number, language in enumerate(LANGUAGES):
        function, content = (part.split() for part in WORDS[language])
        common = np.random.default_rng(number)
        known = dict.fromkeys([*function, *content])
        halves = [(word[: -(-len(word) // 2)], word[len(word) // 2 :]) for word in content]
        pieces = 2
        while len(known) < _VOCABULARY:
            # beginnings and ends of words, put together, look like a word of the language; rare ones are longer
            before = len(known)
            for first, *rest in common.integers(0, len(halves), (1000, pieces)).tolist():
                known.setdefault(halves[first][0] + "".join(halves[i][1] for i in rest))
            pieces += len(known) - before < _FEW
        vocabulary = list(known)[:_VOCABULARY]
        space = "" if language in _UNSPACED else " "
        for word in vocabulary:
            shapes = (word, word[:1].upper() + word[1:])
            forms += [shape + mark + ("" if mark.endswith("\n") else space) for shape in shapes for mark in _MARKS]
        weights = 1 / (np.arange(_VOCABULARY) + 2.7)  # Mandelbrot's shift of Zipf's law
        ends = np.cumsum(weights) / weights.sum()
        tables.append(number * _VOCABULARY + np.searchsorted(ends, (np.arange(_TABLE) + 0.5) / _TABLE))
    return pa.array(forms, pa.large_string()), np.array(tables)


def texts(pages: Pages, seed: int) -> pa.Array:
    """The text of each document, UTF-8. Holds some 100 bytes a word of theirs."""
    shown = draw(pages.number, seed, "template") < _TEMPLATE
    around = np.where(shown, _HEAD + _FOOT, 0)
    lengths = pages.words + around
    ends = np.cumsum(lengths)
    document = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
    # the words of a template are those of its host, at the same places of every page
    head = np.where(shown, _HEAD, 0)[document]
    template = (place < head) | (place >= pages.words[document] + head)
    of = np.where(template, -1 - pages.host[document], pages.text[document])
    at = np.where(place < head, place, place - head + np.where(template, _HEAD - pages.words[document], 0))
    word = keyed(of * (1 << 20) + at, seed, "word")
    [changed] = np.nonzero(
        draw(pages.number[document] * (1 << 20) + place, seed, "edit") < pages.edited[document] * ~template
    )
    word[changed] = keyed(pages.number[document[changed]] * (1 << 20) + place[changed], seed, "other word")

    forms, tables = words()
    low = word & np.uint64(0xFFFF)
    stop = (low < 0x10000 // _SENTENCE) | (place == lengths[document] - 1)
    clause = ((word >> np.uint64(16)) & np.uint64(0xFFFF)) < 0x10000 // _CLAUSE
    last = ((word >> np.uint64(32)) & np.uint64(0xFFFF)) < 0x10000 // _PARAGRAPH
    mark = np.where(stop, 2 + last, clause)
    first = np.append(True, stop[:-1])[: len(stop)] | (place == 0)
    at = (tables[pages.language[document], word >> np.uint64(48)] * 2 + first) * len(_MARKS) + mark
    # the words of a document are next to each other, so its text is where its first begins and its last ends
    _, starts, data = pc.take(forms, pa.array(at)).buffers()
    offsets = np.frombuffer(starts, np.int64)[np.append(0, ends)]
    return pa.LargeStringArray.from_buffers(len(lengths), pa.py_buffer(offsets), data)

"""Words and plain prose of our own, drawn by seeds; snippets that stand beside this package."""

import json
import random
from functools import cache
from pathlib import Path

Text = tuple[str, str]  # what it is, the text
NOUNS = (
    "mill wheel stone river grain flour sack baker oven bread harvest barn field weir miller meadow bridge market "
    "ledger ladder lantern kettle hammer anvil orchard garden cellar window harbour vessel anchor compass forest "
    "valley "
    "mountain village teacher student letter paper pencil engine signal copper silver timber cotton leather winter "
    "summer morning evening weather thunder island castle tower kitchen cupboard blanket carpet mirror candle"
).split()
VERBS = (
    "turns grinds carries lifts keeps opens closes finds brings leaves makes takes gives holds moves follows reaches "
    "watches counts measures weighs repairs builds paints sells buys reads writes learns teaches remembers"
).split()
OTHERS = (
    "old new small large quiet early late heavy light narrow wide broken green yellow distant patient careful honest"
).split()

SENTENCES = {
    "de": "Die Mühle steht am Fluss und mahlt seit vielen Jahren das Korn der Bauern aus dem ganzen Tal.",
    "fr": "La meunière pèse la farine chaque matin et note le poids dans un grand cahier près de la fenêtre.",
    "es": "El molino está junto al río y los campesinos traen el grano en sacos grandes todos los días.",
    "pl": "Młyn stoi nad rzeką, a gospodarze przywożą tam ziarno w dużych workach każdego ranka.",
    "cs": "Mlýn stojí u řeky a sedláci tam každé ráno vozí obilí ve velkých pytlích.",
    "tr": "Değirmen nehrin kıyısında duruyor ve köylüler her sabah buğdayı büyük çuvallarla getiriyor.",
    "vi": "Cối xay nằm bên bờ sông và nông dân mang lúa đến trong những bao lớn mỗi buổi sáng.",
    "ru": "Мельница стоит у реки, и крестьяне каждое утро привозят зерно в больших мешках.",
    "uk": "Млин стоїть біля річки, і селяни щоранку привозять зерно у великих мішках.",
    "el": "Ο μύλος βρίσκεται δίπλα στο ποτάμι και οι αγρότες φέρνουν το σιτάρι σε μεγάλα σακιά.",
    "ar": "تقع الطاحونة بجانب النهر ويحضر الفلاحون الحبوب في أكياس كبيرة كل صباح.",
    "he": "הטחנה עומדת ליד הנהר והאיכרים מביאים את התבואה בשקים גדולים בכל בוקר.",
    "fa": "آسیاب کنار رودخانه ایستاده است و کشاورزان هر روز صبح گندم را در کیسه‌های بزرگ می‌آورند.",
    "hi": "चक्की नदी के किनारे खड़ी है और किसान हर सुबह बड़े बोरों में अनाज लाते हैं।",
    "bn": "কলটি নদীর ধারে দাঁড়িয়ে আছে এবং কৃষকেরা প্রতিদিন সকালে বড় বস্তায় শস্য আনে।",
    "ta": "ஆலை ஆற்றின் அருகில் நிற்கிறது, விவசாயிகள் தினமும் காலையில் தானியத்தைக் கொண்டு வருகிறார்கள்.",
    "th": "โรงสีตั้งอยู่ริมแม่น้ำและชาวนานำข้าวมาในกระสอบใหญ่ทุกเช้า",
    "zh": "磨坊在河边，农民每天早上用大袋子把谷物送来。老磨坊主把面粉称好，然后记在本子上。",
    "ja": "水車小屋は川のそばにあり、農家の人々は毎朝大きな袋で穀物を運んできます。",
    "ko": "방앗간은 강가에 있고 농부들은 매일 아침 큰 자루에 곡식을 담아 가져옵니다.",
    "am": "ወፍጮው በወንዙ አጠገብ ይገኛል፤ ገበሬዎችም በየማለዳው እህል በትላልቅ ጆንያዎች ያመጣሉ።",
    "ka": "წისქვილი მდინარის პირას დგას და გლეხებს ყოველ დილით მარცვალი მოაქვთ დიდი ტომრებით.",
}


def sentence(draw: random.Random) -> str:
    """An English sentence of eleven to eighteen words with stop words among them."""
    parts = [
        f"The {draw.choice(OTHERS)} {draw.choice(NOUNS)} {draw.choice(VERBS)} the {draw.choice(NOUNS)}",
        f"and that {draw.choice(NOUNS)} {draw.choice(VERBS)} to the {draw.choice(NOUNS)} with a {draw.choice(OTHERS)}",
        f"{draw.choice(NOUNS)} of {draw.choice(NOUNS)}",
    ]
    text = " ".join(parts[: draw.choice((2, 3))])
    return f"{text} {draw.choice(NOUNS)}."


def paragraph(seed: int | str, sentences: int = 5) -> str:
    draw = random.Random(f"paragraph {seed}")
    return " ".join(sentence(draw) for _ in range(sentences))


def prose(seed: int | str, paragraphs: int = 3, sentences: int = 5) -> str:
    return "\n\n".join(paragraph(f"{seed} {at}", sentences) for at in range(paragraphs))


def fresh(seed: int | str, count: int) -> list[str]:
    """Words that hardly any other text has."""
    draw = random.Random(f"fresh {seed}")
    letters = "abcdefghijklmnoprstuvw"
    return ["".join(draw.choices(letters, k=draw.randint(4, 8))) for _ in range(count)]


def plain_words(count: int, seed: int | str) -> list[str]:
    """So many words, every fourth a stop word, all others unlike."""
    stops = ("the", "be", "to", "of", "and", "that", "have", "with")
    words = fresh(seed, count)
    return [stops[at // 4 % 8] if at % 4 == 0 else word for at, word in enumerate(words)]


@cache
def snippets(name: str) -> tuple[str, ...]:
    """Texts that try out one branch of the work each: pages, personal, addresses, texts, languages, code."""
    return tuple(json.loads((Path(__file__).parents[1] / "snippets" / f"{name}.json").read_text(encoding="utf-8")))

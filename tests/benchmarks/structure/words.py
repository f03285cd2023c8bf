"""Seeded text in ten scripts: words, phrases, sentences and paragraphs that say nothing."""

import random

_VOCABULARY = {
    "Latin": (
        "the river carries grain from every village to the old mill where a miller weighs it and writes each "
        "sack into his book before winter comes with long nights of wind rain snow over hills while children "
        "bring water wood bread along roads that turn between fields of barley near bridges stone houses "
        "gardens markets"
    ),
    "Cyrillic": (
        "река несёт зерно из каждой деревни на старую мельницу где мельник взвешивает его и пишет всякий "
        "мешок в свою книгу пока зима не пришла с долгими ночами ветра дождя снега над холмами дети приносят "
        "воду дрова хлеб по дорогам которые идут между полями ячменя возле мостов каменных домов садов рынков"
    ),
    "Greek": (
        "το ποτάμι φέρνει σιτάρι από κάθε χωριό στον παλιό μύλο όπου ο μυλωνάς το ζυγίζει και γράφει κάθε "
        "σακί στο βιβλίο του πριν έρθει ο χειμώνας με μεγάλες νύχτες ανέμου βροχής χιονιού πάνω στους λόφους "
        "ενώ παιδιά κουβαλούν νερό ξύλα ψωμί στους δρόμους ανάμεσα σε χωράφια κοντά γέφυρες πέτρινα σπίτια "
        "κήπους αγορές"
    ),
    "Arabic": (
        "النهر يحمل القمح من كل قرية إلى الطاحونة القديمة حيث يزن الطحان الحبوب ويكتب عدد الأكياس في دفتره "
        "قبل أن يأتي الشتاء مع ليال طويلة من الريح والمطر والثلج فوق التلال بينما يجلب الأطفال الماء والخشب "
        "والخبز على طرق تمتد بين حقول الشعير قرب الجسور والبيوت والحدائق والأسواق"
    ),
    "Hebrew": (
        "הנהר נושא תבואה מכל כפר אל הטחנה הישנה שבה הטוחן שוקל אותה וכותב כל שק בספר שלו לפני שהחורף מגיע עם "
        "לילות ארוכים של רוח גשם ושלג מעל הגבעות בזמן שילדים מביאים מים עצים ולחם בדרכים שעוברות בין שדות "
        "שעורה ליד גשרים בתים גנים ושווקים"
    ),
    "Devanagari": (
        "नदी हर गाँव से अनाज पुरानी चक्की तक लाती है जहाँ चक्कीवाला उसे तौलता और अपनी किताब में प्रत्येक बोरी "
        "लिखता है सर्दी आने से पहले लंबी रातें हवा बारिश बर्फ पहाड़ियों पर बच्चे पानी लकड़ी रोटी उन सड़कों से "
        "लाते हैं जो खेतों के बीच पुल घर बगीचे बाज़ार के पास मुड़ती हैं"
    ),
    "Thai": (
        "แม่น้ำ นำ ข้าว จาก ทุก หมู่บ้าน ไป ยัง โรงสี เก่า ที่ คนสี ชั่ง และ เขียน กระสอบ ลง ใน สมุด ก่อน "
        "ฤดูหนาว มา พร้อม คืน ยาว ของ ลม ฝน หิมะ เหนือ เนินเขา เด็ก หา น้ำ ไม้ ขนมปัง ตาม ถนน ระหว่าง ทุ่งนา "
        "ใกล้ สะพาน บ้าน สวน ตลาด"
    ),
    "Han": (
        "河流 把 谷物 从 每个 村庄 运到 古老 磨坊 磨工 称量 它们 并且 写进 账本 冬天 来临 之前 漫长 夜晚 风 "
        "雨 雪 覆盖 山丘 孩子 带来 水 木柴 面包 沿着 道路 穿过 大麦 田野 靠近 桥梁 石屋 花园 市场 的 在 是 和 "
        "也 了"
    ),
    "Kana": (
        "かわは こくもつを むらから ふるい すいしゃごや まで はこび こなひきが はかって ちょうめんに かきます "
        "ふゆが くる まえに ながい よるの かぜ あめ ゆきが おかの うえに ふり こどもたちは みずと まきと "
        "パンを みちに そって もってきます はたけの あいだ はしや いしの いえ にわ いちばの ちかく"
    ),
    "Hangul": (
        "강은 모든 마을에서 곡식을 오래된 방앗간으로 나르고 방앗간 주인은 그것을 달아 자루마다 장부에 적는다 "
        "겨울이 오기 전에 긴 밤의 바람과 비와 눈이 언덕 위에 내리고 아이들은 물과 나무와 빵을 밭 사이로 굽은 "
        "길을 따라 다리와 돌집과 정원과 시장 가까이 가져온다"
    ),
}
SCRIPTS = tuple(_VOCABULARY)
_JOINED = ("Thai", "Han", "Kana")
_STOP = {"Han": "。", "Kana": "。", "Devanagari": "।", "Thai": " "}
_COMMA = {"Han": "，", "Kana": "、", "Arabic": "،", "Thai": " "}
LANGUAGES = dict(zip(SCRIPTS, ("en", "ru", "el", "ar", "he", "hi", "th", "zh", "ja", "ko"), strict=True))


class Words:
    """Text of one script from one seed."""

    def __init__(self, script: str, draw: random.Random):
        self.script = script
        self.draw = draw
        self.vocabulary = _VOCABULARY[script].split()
        self.gap = "" if script in _JOINED else " "

    def word(self) -> str:
        return self.draw.choice(self.vocabulary)

    def phrase(self, least: int, most: int) -> str:
        """Words without punctuation; the first begins with a capital letter where the script has them."""
        text = self.gap.join(self.word() for _ in range(self.draw.randint(least, most)))
        return text[0].upper() + text[1:]

    def sentence(self) -> str:
        comma = _COMMA.get(self.script, ",")
        text = self.phrase(5, 12)
        if self.draw.random() < 0.5:
            after = "" if comma.isspace() else self.gap
            text += comma + after + self.gap.join(self.word() for _ in range(self.draw.randint(4, 9)))
        return text + _STOP.get(self.script, ".")

    def paragraph(self, least: int = 3, most: int = 6) -> str:
        sentences = (self.sentence() for _ in range(self.draw.randint(least, most)))
        return " ".join(" ".join(sentences).split()) if self.gap or self.script == "Thai" else "".join(sentences)

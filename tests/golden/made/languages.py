"""Texts of which a language model is more or less certain: sentences of one language with more and more of another."""

from collections.abc import Iterator

from tests.golden.made.words import SENTENCES, fresh, paragraph, snippets

# Of languages that have a threshold of their own, and of their like.
_MORE = {
    "af": "Die ou meule staan langs die rivier en die boere bring elke oggend hulle graan in groot sakke.",
    "cy": "Mae'r hen felin wrth yr afon ac mae'r ffermwyr yn dod â grawn mewn sachau mawr bob bore.",
    "ga": "Tá an seanmhuileann cois na habhann agus tugann na feirmeoirí arbhar i málaí móra gach maidin.",
    "hr": "Stari mlin stoji uz rijeku i seljaci svako jutro donose žito u velikim vrećama.",
    "id": "Penggilingan tua itu berdiri di tepi sungai dan para petani membawa gandum dalam karung besar setiap pagi.",
    "la": "Mola vetus ad flumen stat et agricolae frumentum magnis saccis cotidie mane portant.",
    "nn": "Den gamle mølla står ved elva, og bøndene kjem med korn i store sekker kvar morgon.",
    "no": "Den gamle møllen står ved elven, og bøndene kommer med korn i store sekker hver morgen.",
    "sk": "Starý mlyn stojí pri rieke a roľníci každé ráno vozia obilie vo veľkých vreciach.",
    "sl": "Stari mlin stoji ob reki in kmetje vsako jutro prinašajo žito v velikih vrečah.",
    "sw": "Kinu cha zamani kipo kando ya mto na wakulima huleta nafaka katika magunia makubwa kila asubuhi.",
    "gl": "O vello muíño está xunto ao río e os labregos traen o gran en sacos grandes cada mañá.",
    "lb": "Déi al Millen steet um Floss an d'Baueren bréngen all Moien hir Frucht a grousse Säck.",
    "mt": "Il-mitħna l-antika tinsab ħdejn ix-xmara u l-bdiewa jġibu l-qamħ fi xkejjer kbar kull filgħodu.",
    "ne": "पुरानो घट्ट खोलाको छेउमा छ र किसानहरू हरेक बिहान ठूला बोरामा अन्न ल्याउँछन्।",
    "tg": "Осиёби кӯҳна дар канори дарё меистад ва деҳқонон ҳар субҳ дар халтаҳои калон ғалла меоранд.",
    "tk": "Köne degirmen derýanyň boýunda durýar we daýhanlar her gün irden uly haltalarda däne getirýärler.",
    "uz": "Eski tegirmon daryo bo'yida turadi va dehqonlar har kuni ertalab katta qoplarda don olib kelishadi.",
    "ba": "Иҫке тирмән йылға буйында тора, һәм крәҫтиәндәр һәр иртән ҙур тоҡтарҙа иген килтерә.",
    "ps": "زوړ ژرنده د سیند تر څنګ ولاړه ده او بزګران هر سهار غنم په لویو بوجیو کې راوړي.",
    "sd": "پراڻي چڪي درياهه جي ڪناري تي بيٺي آهي ۽ هاري هر صبح جو وڏين ٻورين ۾ اناج آڻيندا آهن.",
    "it": "Il vecchio mulino si trova vicino al fiume e i contadini portano il grano in grandi sacchi ogni mattina.",
    "pt": "O velho moinho fica junto ao rio e os camponeses trazem o grão em sacos grandes todas as manhãs.",
    "nl": "De oude molen staat aan de rivier en de boeren brengen elke ochtend graan in grote zakken.",
    "sv": "Den gamla kvarnen står vid floden och bönderna kommer med säd i stora säckar varje morgon.",
}


def language_texts() -> list[str]:
    return [*snippets("languages"), *_alone(), *_beside(), *_capitals(), *_lines()]


def _alone() -> Iterator[str]:
    for line in {**SENTENCES, **_MORE}.values():
        words = line.split()
        yield line
        for count in (1, 2, 3, 5, 8):
            yield " ".join(words[:count])


def _beside() -> Iterator[str]:
    """Less and less certain: with words of no language, with words of English, without accents."""
    for code, line in {**SENTENCES, **_MORE}.items():
        words = line.split()
        for count in (2, 4, 6, 8, 11, 15, 20):
            yield " ".join([*words, *fresh(f"beside {code}", count)])
            yield " ".join([*words[: max(2, len(words) - count // 2)], *paragraph(f"beside {code}", 3).split()[:count]])


def _capitals() -> Iterator[str]:
    """Capital letters around an eighth of a text."""
    for code in ("de", "en", "ru", "hr"):
        line = {**SENTENCES, **_MORE, "en": paragraph("capitals", 1)}[code].lower()[:64]
        for count in (6, 7, 8, 9, 10, 64):
            yield line[:count].upper() + line[count:]


def _lines() -> Iterator[str]:
    """Lines of other languages in a text, of around 40 characters, with blank lines, at the beginning and the end."""
    for code, line in list(SENTENCES.items())[:12]:
        for size in (38, 39, 40, 41, 80):
            yield f"{paragraph(f'lines {code}', 2)}\n\n{line[:size]}\n\n{paragraph(f'lines {code} b', 1)}"
        yield f"{line}\n{paragraph(f'first {code}', 1)}\n{paragraph(f'second {code}', 1)}\n{line}"
    for one, other in (("hr", "sl"), ("nn", "no"), ("id", "nl"), ("pt", "gl")):
        yield "\n".join([_MORE[one], _MORE[one], _MORE[other], "", _MORE[other][:50]])

"""Phone numbers by language: the countries whose numbers are detected, and the words that announce a number.

The words are of the languages that are most frequent on the web.

A word announces what follows it at once (`Tel. 2125550123`, `call us on 2125550123`), or what follows a few more words
and a colon or a preposition (`Tel. reservations: ...`, `call Ann on ...`): the second is weaker, as the words between
may say something else. Some words follow the number (`0212 ... numaralı telefon`). A word of one language or two says
which countries' numbers it announces, whatever the language of the document is taken for.
"""

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

# The regions with a numbering plan, as `phonenumbers.SUPPORTED_REGIONS` has them.
REGIONS = tuple(
    (
        "AC AD AE AF AG AI AL AM AO AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BW BY BZ "
        "CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK FM "
        "FO FR GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GT GU GW GY HK HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE "
        "JM JO JP KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN "
        "MO MP MQ MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PR PS PT "
        "PW PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TA TC TD TG TH TJ TK "
        "TL TM TN TO TR TT TV TW TZ UA UG US UY UZ VA VC VE VG VI VN VU WF WS XK YE YT ZA ZM ZW "
    ).split()
)
# By the codes of the language filter, ISO 639-1: the regions with most speakers on the web (CLDR, territory-language
# information), at most six; in English also two in which it is written most.
BY_LANGUAGE: dict[str, tuple[str, ...]] = {
    language: tuple(regions.split())
    for language, regions in {
        "af": "ZA",
        "am": "ET",
        "ar": "SA EG AE MA DZ IQ",
        "arz": "EG",
        "az": "AZ",
        "be": "BY",
        "bg": "BG",
        "bn": "BD IN",
        "bs": "BA",
        "ca": "ES",
        "cs": "CZ",
        "cy": "GB",
        "da": "DK",
        "de": "DE AT CH",
        "el": "GR CY",
        "en": "US CA GB IE AU NZ SG HK",
        "es": "ES MX AR CO CL PE",
        "et": "EE",
        "eu": "ES",
        "fa": "IR",
        "fi": "FI",
        "fr": "FR BE CH CA",
        "fy": "NL",
        "ga": "IE",
        "gl": "ES",
        "gu": "IN",
        "he": "IL",
        "hi": "IN",
        "hr": "HR",
        "hu": "HU",
        "hy": "AM",
        "id": "ID",
        "is": "IS",
        "it": "IT CH",
        "ja": "JP",
        "jv": "ID",
        "ka": "GE",
        "kk": "KZ",
        "km": "KH",
        "kn": "IN",
        "ko": "KR",
        "ky": "KG",
        "lb": "LU",
        "lo": "LA",
        "lt": "LT",
        "lv": "LV",
        "mk": "MK",
        "ml": "IN",
        "mn": "MN",
        "mr": "IN",
        "ms": "MY",
        "mt": "MT",
        "my": "MM",
        "ne": "NP",
        "nl": "NL BE",
        "nn": "NO",
        "no": "NO",
        "pa": "IN",
        "pl": "PL",
        "ps": "AF",
        "pt": "BR PT",
        "ro": "RO",
        "ru": "RU KZ BY",
        "sh": "RS HR BA",
        "si": "LK",
        "sk": "SK",
        "sl": "SI",
        "sq": "AL XK",
        "sr": "RS",
        "su": "ID",
        "sv": "SE FI",
        "sw": "KE TZ",
        "ta": "IN",
        "te": "IN",
        "tg": "TJ",
        "th": "TH",
        "tl": "PH",
        "tr": "TR",
        "uk": "UA",
        "ur": "PK",
        "uz": "UZ",
        "vi": "VN",
        "yue": "HK",
        "zh": "CN TW HK",
    }.items()
}
# Regions whose numbers are detected only after a word such as `Tel.`: other countries in which the language is written,
# and countries of a language that short texts are mistaken for.
_ANNOUNCED: dict[str, tuple[str, ...]] = {
    language: tuple(regions.split())
    for language, regions in {
        "af": "NA",
        "ar": "JO KW QA LB TN LY OM BH YE SY SD PS",
        "bs": "HR RS",
        "ca": "AD",
        "cs": "SK",
        "da": "NO",
        "de": "LU LI",
        "en": "ZA NG KE IN PK MY PH GH UG TZ ZW LK BD JM TT MT",
        "es": "EC VE GT UY PY BO DO CR PA SV HN NI CU PR US",
        "fa": "AF TJ",
        "fr": "LU MA TN DZ SN CI CM CD",
        "hr": "BA RS ME",
        "id": "MY",
        "ms": "ID SG BN",
        "nl": "SR",
        "nn": "DK",
        "no": "DK",
        "pt": "AO MZ",
        "ro": "MD",
        "ru": "UA UZ KG AM AZ GE MD",
        "sk": "CZ",
        "sr": "BA ME HR",
        "sw": "UG CD",
        "ta": "LK SG MY",
        "tr": "CY AZ",
        "uk": "RU",
        "ur": "IN",
        "zh": "SG MO MY",
    }.items()
}


def announced_regions(
    language: str | None, of_words: tuple[str, ...], by_language: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """Regions whose numbers are detected only after a word that announces them.

    language: of the document; of_words: those of which the word is, if it is of few; by_language: the regions of the
    setting. A language whose regions the setting changes has no more than these.
    """
    regions = [region for one in of_words for region in by_language.get(one, ())]
    if language in _ANNOUNCED and set(by_language.get(language, ())) == set(BY_LANGUAGE[language]):
        regions += _ANNOUNCED[language]
    return tuple(dict.fromkeys(regions))


# Whole words. By language where few have them; a word that is in none of the lists is of many languages.
_OF_MANY = (
    r"tel|telf|telef|telp|tlph|tfno|teléf|ph|call|calling|text|dial|ring|fax|facsimile|faks|telefax|"
    r"mobile|mobiel|mobil|mob|cell|cellular|cel|handy|whats ?app|wa|viber|sms|hotline|helpline|landline|"
    r"toll[- ]free|fon|t[ée]l|tel[eé]fon[oaeui]?|telefoon|móvel|m[óo]vil|celular|cellulare|portable|gsm|"
    r"kom|cep|bel|hp|anruf|ruf|appelez|ligue|ll[aá]m[ea](?:r|nos)?|телефон[уыаеі]?|тел|моб|"
    r"мобил(?:ен|ьный|ьного|ни)?|мобільний|факс|вайбер|ватсап|whatsapp|(?:tele|mobil|handy)(?:fon)?nummer|"
    r"rufnummer|anrufen|appeler|chiamare|chiamate|chiamaci|telefonare|centralino|telefonnr|telefonicky|"
    r"telefonicznie|telefonicamente|telefonisch|kontakttelefon"
)
_OF_LANGUAGES = {
    "af": r"skakel|bel (?:ons|vir)|selfoon(?:nommer)?|selnommer|telefoonnommer",
    "ar": (
        r"(?:[وبلف]?ال|لل|ب)?(?:هاتف|جوال|موبايل|موبيل|محمول|فاكس|تليفون|تلفون|واتس ?اب|واتساب|خلوي|نقال)"
        r"(?:نا|كم|ي|ية|يا)?|"
        r"(?:لل|ال)?(?:اتصال|إتصال)|(?:ا|إ)?تصل(?:وا|ي)?|هاتفيا[ًَ]?|ت(?=\s*[:/.])"
    ),
    "bg": r"обадете се|обаждайте се|звъннете|позвънете|gsm|джиесем|тел\.?\s*за връзка",
    "bn": r"ফোন|মোবাইল|টেলিফোন|মুঠোফোন",
    "cs sk": (
        r"(?:za|pre)?volejte|zavolajte|volajte|volat|volať|mobilu|telefonním čísle|telefónnom čísle|telefónu?|"
        r"pevná linka|linka|lince|linku|infolinka|infolinky|infolince|č\.?\s*tel|telefonní číslo|"
        r"telefónne číslo|mobilní telefon"
    ),
    "da no es": r"tlf|tlfn?r|tlf-nr",
    "da no": (
        r"telefonnummer|mobilnr|ringe?|sms til|vagttelefon|vakttelefon|sentralbord(?:et)?|opringning|"
        r"telefonisk"
    ),
    "sv fi": r"växeln?|tfn|tel\.?nr|telnr|mobilnummer|telefonnumret|ringa",
    "el": (
        r"τηλ[έε]?φ?ω?ν?[οου]?ν?|τηλεφώνου|τηλέφωνα|τηλεφωνήστε|τηλεφωνικ[άώ]ς?|τηλ[/.]?|κιν|κινητ[όο]ύ?|φαξ|"
        r"καλέστε|σταθερό|τηλεφωνικό κέντρο"
    ),
    "en": r"phone|phoned|telephone|cellphone",
    "es pt": (
        r"llame|llámenos|llamando|telefonear|telefone|telefones|telemóvel|telem|tlm|ligar|liguem?|fone|zap|"
        r"ligue-nos"
    ),
    "fa": (
        r"(?:شماره\s*)?(?:تلفن|موبایل|همراه|تماس|فکس|نمابر|دورنگار|تلفکس|واتس‌?اپ)(?:\s*(?:گویا|ثابت|همراه|تماس|رزرو|سفارش|ها))?"
        r"(?:‌?های)?|"
        r"زنگ بزنید به"
    ),
    "fi": (
        r"puh|puhelin|puhelimitse|puhelinnumero|puhelinnumerosta|puhelimesta|puhelinvaihde|vaihde|"
        r"matkapuhelin|kännykkä|kännykkään|soita|soittakaa|soittamalla|soittaa|gsm|"
        r"(?:soita|soittamalla|soittakaa|soittaa|tavoittaa|vastaa)[^.:!?\d]{0,24}numero(?:on|sta|ssa)|"
        r"puhelinnumeroon|tekstiviesti|päivystys|päivystysnumero"
    ),
    "he": (
        r"[והבלמ]?ה?(?:טלפון|טל|נייד|פקס|סלולרי|טלפונית|וואטסאפ|ווטסאפ|סלולארי)|"
        r"[ו]?(?:חייגו|התקשרו|תתקשרו|צלצלו|התקשר[יו]?)(?:\s+(?:אלינו|עכשיו|למספר|ל))?|נא להתקשר"
    ),
    "hi": r"फ़ोन|फोन|फ़ोन|मोबाइल|दूरभाष|टेलीफोन|टेलीफ़ोन|कॉल करें",
    "hr bs sr": (
        r"nazovite|nazvati|zovite|pozovite|pozivom na|mobitel|mob|telefona|telefonom|telefonu|telefonski|"
        r"позовите|назовите|телефона|телефоном|мобилни"
    ),
    "hu": (
        r"telefon(?:on|ja|szám(?:on|a|unk|unkon)?|os|álva|áljon)?|tel\.?szám|mobil(?:szám|on|telefon)?|hívja|"
        r"hívjon|hívjanak|hívható|hívd|vonalas"
    ),
    "id ms": r"telepon|telpon|telfon|telefaks|talian|hp/wa|ponsel|bimbit",
    "ja": r"ケータイ|携帯|フリーダイヤル|代表",
    "ko": r"전화(?:번호)?|휴대(?:폰|전화)|핸드폰|팩스|연락처|대표번호|상담전화|문의전화|문의처?|예약전화|대표전화",
    "nl af": r"bellen(?: naar)?|belt|tel\.?nr|telefoonnummer|mobielnr",
    "pl": (
        r"kom[óo]rka|kom[óo]rkowy|zadzwoń|dzwoń|dzwonić|dzwoniąc|telefonu|telefonem|telefonicznie|stacjonarny|"
        r"infolinia"
    ),
    "ro": (r"sunați|sunaţi|sunati|suna|sună|apelați|apelaţi|apelati|telefonul|telefonic|mobilul|telverde|sunând"),
    "ru uk be bg": (
        r"звоните|звонить|позвоните|позвонить|дзвоніть|дзвонити|телефонуйте|зателефонуйте|телефонам|"
        r"телефонами|телефони|мобилен|стационарен"
    ),
    "sw": r"simu|(?:tu)?piga(?:\s+simu)?|nambari ya simu|tupigie|namba ya simu|rununu",
    "ta": r"மொபைல்|தொலைபேசி|கைபேசி|அலைபேசி",
    "th": (
        r"โทร(?:ศัพท์|สาร|มา|หา|เลย|ติดต่อ)?(?:ที่|เบอร์|ได้ที่)?|เบอร์(?:โทร(?:ศัพท์)?)?|มือถือ|"
        r"แฟ(?:กซ์|็กซ์)|สายด่วน"
    ),
    "tr": (
        r"telefonla|telefonu|telefondan|telefonumuz|cep|gsm|faks|arayın|santral|whatsapp(?: hattı)?|"
        r"(?:ihbar|destek|sipariş)? ?hattı"
    ),
    "ur": r"فون|فون نمبر|موبائل|ٹیلی ?فون|کال|نمبر پر کال|رابطہ نمبر|واٹس ?ایپ|موبائل نمبر",
    "vi": r"điện thoại|đt|sđt|đtdđ|đtcđ|dđ|di động|gọi|hotline|zalo|số máy|tổng đài|máy bàn",
}
# The end of a word (`Mobiltelefon`, `cellphone`), or a part of a text without spaces.
_ENDS = {
    "": r"phones?|telefon|t[ée]l[ée]phone",
    "ja": r"お?問い?合わ?せ(?:は|先)?|電話番号",
    "ja zh": r"電話(?:號碼|号码)?|携帯電話|携帯",
    "zh": (
        r"连絡先|電傳|电话|手机号?码?|手機(?:號碼)?|热线|熱線|专线|專線|联系方式|聯絡(?:方式|電話)?|联系(?:电话)?|传真|傳真|市話|座机|行動|拨打|撥打|撥|洽|致电|致電|"
        r"來電|来电"
    ),
    "ko": r"전화(?:번호)?|휴대(?:폰|전화)|핸드폰|팩스|연락처|문의",
    "th": r"โทร(?:ศัพท์)?|มือถือ|เบอร์",
}
# May follow the word at once: a number, to, us, now.
_MORE = (
    r"no|nr|number|numbers?|num|n[º°]|us|me|now|today|on|at|to|line|č|čís(?:lo|la|le)|číslo|broj|број|"
    r"брой|номер[уа]?|№|numer(?:em|u|ze)?|numar|număr(?:ul)?|número|numero|numéro|nummer(?:et)?|numret|"
    r"number|numrot?|numer[oa]|numaras[ıi]|numaralı|no[’'`]?su|no['’]lu|hattı|nomor|nombor|namba|nambari|"
    r"số|رقم|الرقم|على|علي|على الرقم|شماره|نمبر|پر|למספר|מס|מספר|'|על|ב|στο|στον αριθμό|αρ|αριθμ[όο]ς?|"
    r"στον|oss|på|pa|til|os|nás|nám|na|la|le|au|a|ao|al|para|pelo|ons|by|op|nommer|za|te|la nr|la numărul|"
    r"la telefon|на|за|по|під|से|पर|नंबर|নম্বর|নাম্বার|ons by|vir|sisi|kwa|kupitia|ya|dengan|ke|kami|di|"
    r"pada|us on|(?:và|theo|tại|qua)|بنا|معنا|بالرقم|الأرقام|واتس ?اب|"
    r"theo số|theo|szám(?:on|a)?|a|az|ที่|番号|は|으로|는|은|번호|\(\+?\)|i|en"
)
_SIGNS = r"[\s.:：=\"'’׳״>()（\[#|☎📞✆🕾/,،-]{0,6}"
_LETTER = r"[^\W\d_]"


# Words that also have other meanings.
_SOFT = (
    r"contact(?:ez|o|ați(?:-ne)?|en)?|contato|reach (?:us|me)|numéro|joindre|fixe|fij[oa]|fixo|"
    r"kontakt(?:uj|ujte|ieren)?|контакты?|konta[ck]t(?:e|os|i|er|a)|konta(?:ct|kt)ujte|slå|ügyelet|"
    r"(?:sila )?hubungi|panggil|связи|зв'язку|справок|довідок|irtibat|iletişim|rezervasyon|randevu|bilgi|"
    r"danışma|رابطہ|संपर्क|liên hệ|kundesenter(?:et)?|kundeservice|kundtjänst|kundservice|"
    r"resepsjon(?:en)?|reception(?:en|ist)?|recepc(?:e|ión|ija|ja)|rece[pç]ção|receção|κρατήσεις|"
    r"κρατήσεων|πληροφορίες|επικοινωνία|επικοινωνήστε|επικοινωνίας|"
    r"informa(?:ce|ciones|ções|cje|cije|sjon|tion|țíi|ții)|infos?|vrátnice|vagten?|vakten|"
    r"bestil(?: bord)?|bordbestilling|booking|bookings|reservations?|reserv(?:as|aciones|atie|ări)|"
    r"rezervace|rezerwacje|rezervacije|rezervări|foglalás|objednání|записи?|запис|للاستفسار|للحجز|للتواصل|"
    r"הזמנות|לפרטים|פרטים|tempahan|pemesanan|reservasi|maklumat lanjut|informasi"
)


class Announcement(NamedTuple):
    """Words that announce a number. `weak`: other words are between, or the word also has other meanings.
    `languages`: of the word, if it is of few."""

    weak: bool
    languages: tuple[str, ...]


_LISTS: list[tuple[tuple[str, ...], str]] = [((), _OF_MANY)]
_LISTS += [(tuple(languages.split()), words) for languages, words in _OF_LANGUAGES.items()]
_PARTS = [(tuple(languages.split()), words) for languages, words in _ENDS.items()]


def _alternatives(lists: list[tuple[tuple[str, ...], str]], name: str) -> str:
    return "|".join(f"(?P<{name}{n}>{words})" for n, (_, words) in enumerate(lists))


_AT_ONCE = re.compile(rf"(?:{_alternatives(_LISTS, 'w')})(?:[\s.]+(?:{_MORE})){{0,3}}{_SIGNS}\Z")
_PART = re.compile(rf"(?:{_alternatives(_PARTS, 'p')})(?:[\s.]+(?:{_MORE})){{0,3}}{_SIGNS}\Z")
_SOFTLY = re.compile(rf"(?:{_SOFT})(?:[\s.]+(?:{_MORE})){{0,3}}{_SIGNS}\Z")
# `Tel. reservations:`, `Phone (office):`; `call Ann on`
_LATER = re.compile(
    rf"(?:{_alternatives(_LISTS, 'w')}|\w*?(?:{_alternatives(_PARTS, 'p')}))(?!{_LETTER})"
    rf"(?P<between>[\s.,/(-]{{1,3}}(?:{_LETTER}[\w'’.-]*[\s/,()]{{1,2}}){{0,3}}"
    rf"(?:{_LETTER}[\w'’.-]*[\s/,()]{{0,2}})?)"
    r"(?::|(?<=\s)(?:on|at|på|na|au|ao|al|pelo|по|на|la|στο|numeroon|telefonnummer|nr|sur le|auf|unter|op|by|kwa)\s)"
    r"\s*\(?\Z"
)
_TOKEN = re.compile(r"\w+")
_MAX_TOKENS = 6  # from the beginning of the word to the number
# what `_LATER` ends with, to leave most texts early
_LATER_END = re.compile(rf"(?::|{_LETTER}\s)\s*\(?\Z")
_MAX_BETWEEN = 36  # characters
# What a number with a label of its own is.
_OTHER_NUMBERS = re.compile(
    r"\b(?:ref\w*|imei|serial|serie\w*|sn|models?|modell?o?|version|order|ordre|ordine|bestell?\w*|commande|"
    r"pedido|price|preis|prix|pris|cena|precio|preço|kr|eur|usd|isbn|issn|iban|id|ids|code|kod|kode|codigo|"
    r"código|sku|ean|art|item|invoice|faktur\w*|case|since|from|account|konto|rachunek|size|date|dato|"
    r"datum|data|version\w*|verzi\w*|заказ\w*|цена|модель|артикул|имеи|счет\w*)\b"
)
_AFTERWARDS = re.compile(
    r"[\s)]{0,2}(?:numaralı (?:telefon|hat)|no['’]?lu (?:telefon|hat)|nolu (?:telefon|hat)|"
    r"(?:numaradan|['’][dt][ae]n) (?:ulaş|ara)|تماس|پر (?:فون|رابطہ|کال)|번?(?:으로|로) (?:전화|연락|문의)|"
    r"-(?:as|es|os|ös) (?:telefon|szám|mobil)|telefonszám|(?:番)?(?:へ|に|まで)お?(?:電話|問い合わせ)|"
    r"पर (?:कॉल|फोन|फ़ोन|संपर्क)|নম্বরে)"
)


@lru_cache(1 << 14)
def announced_before(text: bytes) -> Announcement | None:
    """What the text before a number says of it."""
    read = unicodedata.normalize("NFKC", text.decode("utf-8", "ignore")).lower()
    starts = [match.start() for match in _TOKEN.finditer(read)][-_MAX_TOKENS:]
    for start in starts:
        if match := _AT_ONCE.match(read, start):
            return Announcement(False, _languages(match))
    if match := _PART.search(read):
        return Announcement(False, _languages(match))
    if _LATER_END.search(read):
        for start in starts:
            match = _LATER.match(read, start)
            if match and len(match["between"]) <= _MAX_BETWEEN and not _OTHER_NUMBERS.search(match["between"]):
                return Announcement(True, _languages(match))
    return Announcement(True, ()) if any(_SOFTLY.match(read, start) for start in starts) else None


def _languages(match: re.Match[str]) -> tuple[str, ...]:
    name = next(name for name, value in match.groupdict().items() if value is not None and name != "between")
    return {"w": _LISTS, "p": _PARTS}[name[0]][int(name[1:])][0]


@lru_cache(1 << 14)
def announced_after(text: bytes) -> bool:
    """Whether the text after a number says that it is a phone number."""
    return _AFTERWARDS.match(text.decode("utf-8", "ignore").lower()) is not None

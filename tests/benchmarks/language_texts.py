"""Texts whose language is known: lingua's test sentences, Zack Weinberg's documents and NTREX-128, and codes of
languages as all identifiers write them."""

import os
import random
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

MACROLANGUAGES = {
    **dict.fromkeys(("bs", "hr", "sr", "sh"), "hbs"),
    **dict.fromkeys(("id", "ms"), "msa"),
    **dict.fromkeys(("nb", "nn", "no"), "nor"),
}
# ISO 639-3 and other identifiers' codes, and the code of Gristmill's models.
_CODES = dict(
    pair.split("=")
    for pair in (
        "afr=af als=sq amh=am arb=ar ara=ar aze=az azj=az bak=ba bel=be ben=bn bod=bo bos=bs bul=bg cat=ca ces=cs "
        "cmn=zh cym=cy dan=da deu=de div=dv dzo=dz ekk=et ell=el eng=en est=et eus=eu ewe=ee fao=fo fas=fa fij=fj "
        "fil=tl fin=fi fra=fr fuc=ff fuv=ff gaz=om gle=ga glg=gl guj=gu hat=ht hau=ha heb=he hin=hi hrv=hr hun=hu "
        "hye=hy ibo=ig ind=id isl=is ita=it iw=he jav=jv jpn=ja jw=jv kan=kn kat=ka kaz=kk khk=mn khm=km kin=rw "
        "kir=ky kmr=ku kor=ko lao=lo lat=la lav=lv lit=lt ltz=lb lug=lg lvs=lv mal=ml mar=mr mkd=mk mlg=mg mlt=mt "
        "mon=mn mri=mi msa=ms mya=my nb=no nde=nd nep=ne nld=nl nno=nn nob=no npi=ne nya=ny orm=om ory=or pan=pa "
        "pbt=ps pes=fa plt=mg pol=pl por=pt prs=fa pus=ps ron=ro rus=ru sin=si slk=sk slv=sl smo=sm sna=sn snd=sd "
        "som=so sot=st spa=es sqi=sq srp=sr ssw=ss swa=sw swe=sv swh=sw tah=ty tam=ta tat=tt tel=te tgk=tg tgl=tl "
        "tha=th tir=ti ton=to tsn=tn tso=ts tuk=tk tur=tr uig=ug ukr=uk urd=ur uzb=uz uzn=uz uzs=uz ven=ve vie=vi "
        "wol=wo xho=xh ydd=yi yor=yo zho=zh zsm=ms zul=zu"
    ).split()
)


class Truth(NamedTuple):
    """A text, its language, and the file that it is from: a language and script, or a country's form of it."""

    group: str
    language: str
    text: str


def canonical(label: str) -> str:
    """The code of a language in Gristmill's models, from a label as `srp-Cyrl`, `zh-Hant` or `deu`."""
    code = label.lower().replace("_", "-").partition("-")[0]
    return _CODES.get(code, code)


def same(one: str, other: str) -> bool:
    """Whether two languages are one, or of one macrolanguage."""
    return MACROLANGUAGES.get(one, one) == MACROLANGUAGES.get(other, other) or {one, other} == {"yue", "zh"}


def data() -> Path:
    """The folder with the test data; skips the test where there is none."""
    if "GRISTMILL_TEST_DATA" not in os.environ:
        pytest.skip("GRISTMILL_TEST_DATA does not name the folder with the data sets")
    return Path(os.environ["GRISTMILL_TEST_DATA"])


def lingua() -> dict[str, list[str]]:
    """lingua's test sentences by language: up to 1,000 in each of 75."""
    return {Path(name).stem: lines for name, lines in _members("langid_lingua_sentences_75.tar.gz", "sentences/")}


def documents() -> Iterator[tuple[str, str]]:
    """(language, text) of 117 documents of about 500 words, by Zack Weinberg; the first four lines of a file say where
    it is from."""
    for name, lines in _members("langid_zackw_117docs.tar.gz", "tests/"):
        if name.endswith(".txt"):
            yield canonical(Path(name).name.partition(".")[0].rstrip("_")), " ".join(lines[4:])


def ntrex(folder: str | None) -> dict[str, list[str]]:
    """NTREX-128's sentences by file, as `srp-Latn`: 1,997 each. Skips the test without its folder."""
    if folder is None:
        pytest.skip("--ntrex names no folder with NTREX-128")
    files = sorted(Path(folder).glob("newstest2019-ref*.txt"))
    return {
        path.name.removeprefix("newstest2019-ref").removesuffix(".txt").lstrip("-2."): _lines(path.read_bytes())
        for path in files
    }


def pieces(sentences: dict[str, list[str]], characters: int, count: int) -> list[Truth]:
    """Of each file so many texts of so many characters, which begin where a sentence begins."""
    found = []
    for group, lines in sentences.items():
        draw = random.Random(f"{group} {characters}")
        for _ in range(count):
            first = draw.randrange(len(lines))
            text = " ".join(lines[first : first + characters // 10 + 1])[:characters]
            if len(text) == characters:
                found.append(Truth(group, canonical(group), text))
    return found


def _members(archive: str, folder: str) -> Iterator[tuple[str, list[str]]]:
    with tarfile.open(data() / archive) as members:
        for member in sorted(members.getmembers(), key=lambda member: member.name):
            if member.name.startswith(folder) and member.isfile():
                yield member.name, _lines(members.extractfile(member).read())


def _lines(content: bytes) -> list[str]:
    return [line.strip() for line in content.decode().splitlines() if line.strip()]

"""Look-up of near-duplicates in a small home: which are like a document or a file, and what became of them."""

import random
import shutil
import sys
import unicodedata
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from gristmill.flows import cli
from gristmill.flows.reports import similar
from gristmill.flows.stages.dedup import near_duplicates
from gristmill.storage import checked_json, files, layout, parquet
from gristmill.tasks.dedup.near.settings import MinHash
from tests.corpora import Texts, context, plain_jaccard

MINHASH = MinHash(bands=16, rows=4, permutations=64, threshold=0.7)


def made_up() -> list[dict]:
    """Families of documents that differ from their first in a few words at the end, or in many."""
    draw = random.Random(1)
    documents = []
    for family in range(8):
        words = [f"caf\u00e9{draw.randrange(5000)}" for _ in range(120)]
        for member, changes in enumerate((0, 1, 3, 8, 30, 120)):
            text = " ".join(words[: 120 - changes] + [f"new{draw.randrange(10**6)}" for _ in range(changes)])
            documents.append({"id": f"{family}a{member}{draw.randrange(16**8):08x}", "text": text})
    draw.shuffle(documents)
    return documents


class Home:
    """A home with the stages of a near-duplicate removal over documents in three shards."""

    def __init__(self, folder: Path, step: MinHash):
        self.path = str(folder)
        documents = made_up()
        self.documents = {document["id"]: document for document in documents}
        texts = Texts([documents[i::3] for i in range(3)], ["web", "web", "books"])
        corpus = texts.corpus(self.path)
        normalize = {"normalize": {"step": "normalize", "mojibake": False}}
        manifest = layout.manifest(corpus.documents.folder) | {"record": normalize}
        checked_json.write(files.join(corpus.documents.folder, "manifest.json"), manifest)
        self.context, self.recipe, self.corpus = context(self.path), texts.recipe, corpus
        self.kept = self.remove(step)

    def remove(self, step: MinHash):
        return near_duplicates.minhash(self.context, self.recipe, self.corpus, step).kept

    def look_up(self, document: str, **given) -> similar.LookUp:
        usual = {"redis": "", "bands": None, "rows": None, "threshold": 0.5, "n": 100, "progress": lambda *_: None}
        [found] = similar.look_up(self.path, document, **(usual | given))
        return found

    def truth(self, text: str, least: float, without: str = "") -> list[tuple[float, str]]:
        like = [(-plain_jaccard(text, each["text"]), name) for name, each in self.documents.items() if name != without]
        return sorted((jaccard, name) for jaccard, name in like if -jaccard >= least)


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Home:
    return Home(tmp_path_factory.mktemp("home"), MINHASH)


def first(home: Home, member: int = 0) -> dict:
    return home.documents[next(name for name in sorted(home.documents) if name.startswith(f"3a{member}"))]


def pairs(looked: similar.LookUp) -> list[tuple[float, str]]:
    return [(-match.jaccard, match.id) for match in looked.matches]


def test_a_document_is_like_those_of_its_family(home):
    document = first(home)
    looked = home.look_up(document["id"][:6])
    assert pairs(looked) == home.truth(document["text"], 0.5, without=document["id"])
    assert (looked.query.id, looked.query.text) == (document["id"], document["text"])
    assert len(looked.matches) == looked.like == 4
    for match in looked.matches:
        assert match.text == home.documents[match.id]["text"]
        assert match.url == f"https://{match.source}.example/{match.id}"


def test_what_became_of_them_is_what_the_ledger_says(home):
    ledger = {
        row["id"]: row
        for i in range(3)
        for row in parquet.read_table(layout.ledger_part(home.kept.folder, i)).to_pylist()
    }
    kept = {row["id"]: row for i in range(3) for row in parquet.read_table(home.kept.part(i)).to_pylist()}
    counts = {True: 0, False: 0}
    for member in (0, 3):
        looked = home.look_up(first(home, member)["id"])
        histories = [(looked.query.id, looked.decisions), *((match.id, match.decisions) for match in looked.matches)]
        for name, [decision] in histories:
            assert decision.stage == f"{home.kept.name}-{home.kept.key}"
            assert decision.kept == (name in kept) == (name not in ledger)
            assert decision.row == (kept if decision.kept else ledger)[name]
            counts[decision.kept] += 1
            if not decision.kept:
                other, value = decision.row["representative"], decision.row["value"]
                assert value == plain_jaccard(home.documents[name]["text"], home.documents[other]["text"])
    assert all(counts.values())


def test_a_file_is_normalised_as_the_documents_were(home, tmp_path):
    document = first(home)
    path = tmp_path / "file.txt"
    words = document["text"].split()
    text = "\r\n".join(words[:50]) + "\u00ad\u00a0  " + " ".join(words[50:])
    path.write_bytes(b"\xef\xbb\xbf" + unicodedata.normalize("NFD", text).encode())
    looked = home.look_up(str(path))
    assert looked.query.id is None and looked.decisions == ()
    assert looked.matches[0].id == document["id"] and looked.matches[0].jaccard == 1.0
    assert pairs(looked) == home.truth(document["text"], 0.5)


def test_threshold_and_number_are_kept_to(home):
    document = first(home)
    looked = home.look_up(document["id"], threshold=0.8, n=1)
    truth = home.truth(document["text"], 0.8, without=document["id"])
    assert pairs(looked) == truth[:1] and looked.like == len(truth) > 1


def test_bands_are_those_of_the_step_or_as_asked_for(home, tmp_path):
    document = first(home)["id"]
    settings = home.look_up(document).settings
    assert (settings.bands, settings.rows, settings.permutations) == (16, 4, 64)
    settings = home.look_up(document, bands=4).settings
    assert (settings.bands, settings.rows) == (4, 4)
    with pytest.raises(ValueError, match="16 bands of 8 rows need 128 permutations"):
        home.look_up(document, rows=8)
    twice = Home(tmp_path, MINHASH)
    twice.remove(MINHASH.model_copy(update={"bands": 32, "rows": 2}))
    found = list(similar.look_up(twice.path, document, "", None, None, 0.5, 9, lambda *_: None))
    assert {(one.settings.bands, one.settings.rows) for one in found} == {(16, 4), (32, 2)}
    assert [len(one.decisions) for one in found] == [1, 1]
    assert len({one.decisions[0].stage for one in found}) == 2


def test_what_is_not_there_is_an_error(home, tmp_path):
    with pytest.raises(LookupError, match="6 documents have an id that begins with 3a"):
        home.look_up("3a")
    with pytest.raises(LookupError, match="no file nothing, and no document"):
        home.look_up("nothing")
    with pytest.raises(LookupError, match="no finished stage `signatures`"):
        next(similar.look_up(str(tmp_path), "x", "", None, None, 0.5, 1, lambda *_: None))
    path = tmp_path / "latin.txt"
    path.write_bytes("caf\u00e9".encode("latin-1"))
    with pytest.raises(ValueError, match="latin.txt is not UTF-8"):
        home.look_up(str(path))


def test_signatures_of_another_version_are_passed_over(home):
    here = home.look_up(first(home)["id"])
    folder = f"{home.path}/stages/{here.stage}"
    older = f"{home.path}/stages/signatures-0123456789abcdef"
    shutil.copytree(folder, older)
    checked_json.write(f"{older}/manifest.json", layout.manifest(folder) | {"key": "0123456789abcdef"})
    for i in range(3):  # a file knows the stage that it was written in
        parquet.write_table(f"{older}/part-{i:05d}.parquet", parquet.read_table(f"{folder}/part-{i:05d}.parquet"))
    try:
        both = list(similar.look_up(home.path, first(home)["id"], "", None, None, 0.5, 9, lambda *_: None))
        assert [looked.stage for looked in both] == ["signatures-0123456789abcdef", here.stage]
        assert (both[0].settings.bands, both[0].settings.rows) == (16, 4)
        for i in range(3):
            table = parquet.read_table(f"{older}/part-{i:05d}.parquet")
            content = pc.add(table["content"], pa.scalar(1, pa.uint64()))
            parquet.write_table(f"{older}/part-{i:05d}.parquet", table.set_column(3, "content", content))
        assert home.look_up(first(home)["id"]) == here
    finally:
        shutil.rmtree(older)


def test_with_a_redis_the_same_is_found(home, redis_server):
    document = first(home)["id"]
    reported = []

    def progress(*line) -> None:
        reported.append(line)

    assert home.look_up(document, redis=redis_server.address, progress=progress) == home.look_up(document)
    assert reported[-1] == (f"signatures-{reported[-1][0].split('-')[1]}", 48, 48)
    reported.clear()
    home.look_up(document, redis=redis_server.address, progress=progress)
    assert reported == []


def test_the_command_prints_what_is_alike_and_never_the_password(home, redis_server, monkeypatch, capfd):
    document = first(home)
    monkeypatch.setenv("GRISTMILL_HOME", home.path)
    monkeypatch.setattr(sys, "argv", ["gristmill", "explain", "similar", document["id"][:7], "-n", "2"])

    def run(address: str) -> tuple[int, str, str]:
        monkeypatch.setenv("GRISTMILL_REDIS", address)
        with pytest.raises(SystemExit) as left:
            cli.main()
        return left.value.code, *capfd.readouterr()

    code, printed, _ = run(redis_server.address)
    assert code == 0
    for jaccard, name in home.truth(document["text"], 0.5, without=document["id"])[:2]:
        assert f"{-jaccard:.4f}  {name}" in printed
    assert "16 bands of 4 rows" in printed and "\u27e6" in printed
    code, *printed = run(redis_server.address.replace(redis_server.password, "hunter2"))
    assert code == 1 and "redis.sock" in printed[1]
    assert "hunter2" not in "".join(printed)

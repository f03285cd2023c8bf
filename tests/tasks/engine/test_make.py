"""A stage is found by its key or made, job by job; its key is all that its jobs may read."""

from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
from pydantic import BaseModel, ConfigDict

from gristmill.storage import checked_json, files, layout, ledger, parquet
from gristmill.storage.files import DiskFullError
from gristmill.storage.home import verify
from gristmill.storage.schema import SELECTION
from gristmill.tasks.engine.executors import Deferred, Threads, deferred
from gristmill.tasks.engine.make import NotFinishedError, find, find_or_make
from gristmill.tasks.engine.phases import PhaseRunner, Silent
from gristmill.tasks.engine.spec import MAX_INPUTS, StageSpec, Work, digest
from gristmill.tasks.rules.bad_words import BadWords
from gristmill.tasks.url.step import Url
from tests.limits import largest_file


class Shouting(BaseModel):
    model_config = ConfigDict(frozen=True)

    loud: bool = True


QUIET = Shouting()


class Step(Shouting):
    """A step of a recipe: more than the stage's record."""

    threshold: int = 5


def write(folder, number, text, settings):
    files.write_bytes(f"{folder}/part-{number:05d}.txt", (text.upper() if settings.loud else text).encode())
    return {"characters": len(text)}


def shout(phases: PhaseRunner, record: Shouting, places: list[str]) -> dict:
    done = phases.map("write", write, {i: {"text": text, "settings": record} for i, text in enumerate(places)})
    return {"characters": sum(each["characters"] for each in done.values())}


def peek(folder, number, settings):
    return {"threshold": settings.threshold}


def peeking(phases: PhaseRunner, record: Shouting, places: None) -> dict:
    return phases.once("peek", peek, {"settings": record})


def fail_once(folder, number, mark):
    if number == 2 and not Path(mark).exists():
        Path(mark).touch()
        raise ValueError("killed")
    files.write_bytes(f"{folder}/part-{number:05d}.txt", b"x")
    return {"seen": Path(mark).exists()}


def failing(phases: PhaseRunner, record: Shouting, places: str) -> dict:
    done = phases.map("work", fail_once, {number: {"mark": places} for number in range(4)})
    return {"seen": [record["seen"] for record in done.values()]}


def grow(folder, number):
    found = (Path(folder) / "part-00000.txt").exists()
    files.write_bytes(f"{folder}/part-{number:05d}.txt", b"x" * (100 if number == 0 else 3 << 20))
    return {"found": found}


def growing(phases: PhaseRunner, record: Shouting, places: None) -> dict:
    phases.map("grow", grow, {0: {}, 1: {}})
    return {}


def select(folder, number, dropped):
    ids = ["a", "b", "c", "d"]
    arriving = pa.table({"id": ids, "characters": [10] * 4}).cast(SELECTION)
    rows = [{"id": i, "step": "x", "rule": "short", "value": 1.0, "threshold": 2.0} for i in ids[:dropped]]
    return ledger.write_selection(folder, number, arriving, [("x", ledger.from_rows(rows))])


def selecting(phases: PhaseRunner, record: Shouting, places: list[int]) -> dict:
    phases.map("decide", select, {i: {"dropped": dropped} for i, dropped in enumerate(places)})
    return {}


def lose(folder, number, dropped):
    record = select(folder, number, dropped)
    path = layout.ledger_part(folder, number)
    parquet.write_table(path, parquet.read_table(path)[:0])
    return record


def losing(phases: PhaseRunner, record: Shouting, places: list[int]) -> dict:
    phases.map("decide", lose, {i: {"dropped": dropped} for i, dropped in enumerate(places)})
    return {}


def spec(body=shout, record: BaseModel = QUIET, places=("one", "two"), **more) -> StageSpec:
    inputs = {"texts": digest(list(map(str, places or ())))} | more
    return StageSpec(name="shouted", version=1, body=body, record=record, inputs=inputs, places=places)


def made(home: Path, one: StageSpec):
    return find_or_make(str(home), one, Threads(1, None), lambda: nullcontext(Silent()))


def test_a_stage_is_made_once_and_found_with_one_read_however_many_parts_it_has(tmp_path, monkeypatch):
    many = spec(places=[str(i) for i in range(20_000)])
    first = made(tmp_path, spec())
    assert not first.reused and first.result == {"characters": 6}
    assert (Path(first.folder) / "part-00001.txt").read_text() == "TWO"
    assert first.records("write") == [{"characters": 3}, {"characters": 3}]
    assert made(tmp_path, spec()).reused

    parts = [
        layout.Part("write", i, {"characters": 1}, {f"part-{i:05d}.txt": {"bytes": 1, "content": ""}})
        for i in range(20_000)
    ]
    layout.write_manifest(many.folder(str(tmp_path)), {**many.identity, "key": many.key, "result": {}}, parts)
    reads = []
    inner = files.read_bytes
    monkeypatch.setattr(files, "read_bytes", lambda path: (reads.append(path), inner(path))[1])
    for check in ("exists", "names", "open_file"):
        monkeypatch.setattr(files, check, lambda path: pytest.fail(f"a request for {path}"))
    found = made(tmp_path, many)
    assert found.reused and reads == [f"{found.folder}/manifest.json"]
    assert len((Path(found.folder) / "manifest.json").read_bytes()) < 2_000


def test_the_key_is_the_hash_of_versions_record_inputs_libraries_and_data():
    one = spec()

    def other(name="shouted", body=shout, **more) -> StageSpec:
        return StageSpec(
            **{"name": name, "version": 1, "body": body, "record": Shouting(), "inputs": one.inputs} | more
        )

    others = [
        spec(record=Shouting(loud=False)),
        spec(more="input"),
        other(version=2),
        other(work=Work(versions={"url": 1})),
        other(work=Work(versions={"url": 2})),
        other(work=Work(libraries=("kenlm",))),
        other(work=Work(data=("publicsuffixlist:public_suffix_list.dat",))),
        other(work=Work(unicode=False)),
        other("whispered"),
    ]
    assert len({one.key, *(each.key for each in others)}) == len(others) + 1
    # where the inputs are, which modules do the work and which step asks for it are in no key
    assert other(places=("elsewhere",)).key == one.key
    for work in (Work(modules=("gristmill.tasks.kernels.folding",)), Work(steps=("shout",))):
        assert other(work=work).key == one.key
    assert other(body=peeking).key == one.key and other(body=peeking).code == one.code


def test_a_stage_that_is_read_counts_by_its_contents_and_not_by_how_it_was_made(tmp_path):
    first = made(tmp_path, spec(places=["a", "b"]))
    same = made(tmp_path, spec(places=["A", "B"]))
    assert first.key != same.key and first.contents == same.contents
    differing = made(tmp_path, spec(places=["a", "c"]))
    assert differing.contents != first.contents

    def reading(stage) -> StageSpec:
        return StageSpec(name="reading", version=1, body=shout, record=QUIET, inputs={"texts": stage}, places=("x",))

    assert reading(first).key == reading(same).key != reading(differing).key
    assert not made(tmp_path, reading(first)).reused and made(tmp_path, reading(same)).reused
    assert made(tmp_path, reading(same)).manifest["read"] == {"texts": first.label}


def test_a_key_knows_which_list_is_which_and_not_where_they_are(tmp_path):
    """Lists may have one name, in folders that no key knows; so may those that are exchanged, or named twice."""

    def keys(home: Path) -> list[str]:
        for folder, text in {"one": "cheese", "two": "wine", "adult": "a.example", "games": "a.example"}.items():
            (home / folder).mkdir(parents=True)
            for name in ("words", "domains"):
                (home / folder / name).write_text(f"{text}\n")
        one, two = str(home / "one/words"), str(home / "two/words")
        steps = [
            BadWords(lists={"en": one, "de": two}),
            BadWords(lists={"de": one, "en": two}),
            Url(hard_words=(one, two), soft_words=(one,)),
            Url(hard_words=(one, two), soft_words=(two,)),
            Url(blocklists=(str(home / "adult/domains"),)),  # whose folder is its name in the ledger
            Url(blocklists=(str(home / "games/domains"),)),
        ]
        return [StageSpec(name="shouted", version=1, body=shout, record=step.pinned(), inputs={}).key for step in steps]

    first = keys(tmp_path / "here")
    assert len(set(first)) == len(first)
    assert keys(tmp_path / "there") == first


def test_a_job_cannot_read_what_the_key_does_not_hold(tmp_path):
    """The record is what is hashed: a field that is not in it is not there, and no other way leads to a job."""
    step = Step(threshold=7)
    with pytest.raises(AttributeError, match="threshold"):
        made(tmp_path, spec(body=peeking, record=Shouting(loud=step.loud), places=None))
    assert made(tmp_path, spec(body=peeking, record=step, places=None)).result == {"threshold": 7}

    def closing_over(phases, record, places):
        return {"threshold": step.threshold}

    with pytest.raises(TypeError, match="is not a module function: values in its closure would not be in a key"):
        spec(body=closing_over)
    with pytest.raises(TypeError, match="is not a module function"):
        spec(body=lambda phases, record, places: {})
    for places in (step, [step], {"step": (step,)}, 0.8):
        with pytest.raises(TypeError, match="move what decides the result into the record"):
            StageSpec(name="shouted", version=1, body=shout, record=Shouting(), inputs={}, places=places)


def test_a_record_cannot_change_and_inputs_are_few():
    class Loose(BaseModel):
        loud: bool = True

    with pytest.raises(TypeError, match="is not a frozen pydantic model"):
        spec(record=Loose())
    with pytest.raises(ValueError, match="pass one digest"):
        StageSpec(
            name="shouted",
            version=1,
            body=shout,
            record=Shouting(),
            inputs={str(i): "" for i in range(MAX_INPUTS + 1)},
        )


def test_what_was_begun_goes_on_where_it_was(tmp_path):
    one = spec(body=failing, places=str(tmp_path / "mark"))
    with pytest.raises(ValueError, match="killed"):
        made(tmp_path, one)
    assert find(str(tmp_path), one) is None
    assert made(tmp_path, one).result == {"seen": [False, False, True, True]}


class Counting(Threads):
    """Serial; `sent`: how many jobs each call of `map` was given."""

    def __init__(self) -> None:
        super().__init__(1, None)
        self.sent: list[int] = []

    def map(self, work, jobs):
        jobs = list(jobs)
        self.sent.append(len(jobs))
        return super().map(work, jobs)


@pytest.mark.extended
def test_what_is_done_is_listed_once_and_goes_to_no_worker_again(tmp_path, monkeypatch):
    """300 jobs of which 299 were done; a worker reads the marks of 128 at a time."""
    one = spec(places=[f"text {number}" for number in range(300)])
    whole = made(tmp_path, one)
    (Path(whole.folder) / "manifest.json").unlink()
    (Path(whole.folder) / "done" / "write-00007.json").unlink()
    listed = []
    inner = files.names
    monkeypatch.setattr(files, "names", lambda folder: (listed.append(folder), inner(folder))[1])
    counting = Counting()
    again = find_or_make(str(tmp_path), one, counting, lambda: nullcontext(Silent()))
    assert counting.sent == [3, 1]
    assert [folder for folder in listed if folder.endswith("done")] == [f"{whole.folder}/done"]
    assert again.manifest == whole.manifest and again.records("write") == whole.records("write")


def test_a_full_disk_is_one_sentence_and_afterwards_it_goes_on(tmp_path):
    one = spec(body=growing, places=None)
    with (
        largest_file(1 << 20),
        pytest.raises(DiskFullError, match="some space and run the same command again") as error,
    ):
        made(tmp_path, one)
    assert one.folder(str(tmp_path)) in str(error.value) and "MB there" in str(error.value)
    assert (Path(one.folder(str(tmp_path))) / "part-00000.txt").stat().st_size == 100
    assert made(tmp_path, one).records("grow") == [{"found": False}, {"found": True}]
    assert sorted(path.name for path in Path(one.folder(str(tmp_path))).glob("*")) == [
        "cost.json",
        "done",
        "maker.json",
        "manifest.json",
        "part-00000.txt",
        "part-00001.txt",
        "parts.json",
    ]


def test_what_is_found_starts_no_workers(tmp_path):
    with deferred("threads", 2) as workers:
        first = find_or_make(str(tmp_path), spec(), workers, lambda: nullcontext(Silent()))
    idle = Deferred(lambda: pytest.fail("workers were started"))
    found = find_or_make(str(tmp_path), spec(), idle, lambda: nullcontext(Silent()))
    assert found.reused and found.manifest == first.manifest
    with pytest.raises(pytest.fail.Exception, match="workers were started"):
        find_or_make(str(tmp_path), spec(places=["other"]), idle, lambda: nullcontext(Silent()))


def test_counts_are_summed_and_must_come_out(tmp_path):
    stage = made(tmp_path, spec(body=selecting, places=[1, 0, 2]))
    [count] = stage.step_counts
    assert (count["rows_in"], count["rows_out"], count["drops"]) == (12, 9, {"short": 3})
    assert stage.manifest["counts"]["rows_out"] == 9

    wrong = spec(body=losing, places=[0, 1])
    with pytest.raises(ledger.LedgerError, match="4 documents in, 3 out, but 0 rows in the ledger") as error:
        made(tmp_path / "again", wrong)
    folder = wrong.folder(str(tmp_path / "again"))
    assert error.value.__notes__ == [f"job 1 of phase decide of {folder}"], "the job itself finds it"
    assert layout.done_numbers(folder) == {"decide": {0}}


@pytest.mark.parametrize("torn", [b"", b"{", b"[1]"])
def test_a_torn_manifest_names_file_and_remedy(tmp_path, torn):
    stage = made(tmp_path, spec())
    path = Path(stage.folder) / "manifest.json"
    path.write_bytes(torn)
    with pytest.raises(layout.ManifestError, match=f"manifest.json is not what was written; remove .*{stage.folder}"):
        made(tmp_path, spec())


def test_a_stage_of_another_format_is_refused_with_its_remedy(tmp_path):
    stage = made(tmp_path, spec())
    path = Path(stage.folder) / "manifest.json"
    checked_json.write(str(path), {**checked_json.read(str(path)), "format": 5})
    with pytest.raises(layout.ManifestError, match="format 5, but this version reads 6.*run its recipe again"):
        find(str(tmp_path), spec())


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_verify_finds_a_flipped_bit_anywhere(tmp_path):
    stage = made(tmp_path, spec(body=selecting, places=[1, 0]))
    assert verify(stage.folder).damages == () and verify(stage.folder).files == 4
    part = Path(layout.part(stage.folder, 1))
    sound = part.read_bytes()
    for at in range(0, len(sound), 13):
        flip(part, at)
        found = verify(stage.folder).damages
        assert [damage.path for damage in found][:1] == [str(part)], at
        part.write_bytes(sound)
    part.unlink()
    assert [damage.trouble for damage in verify(stage.folder).damages] == ["is missing"]


def test_verify_finds_other_files_lists_and_unfinished_stages(tmp_path):
    stage = made(tmp_path, spec())
    flip(Path(stage.folder) / "part-00000.txt", 1)
    [damage] = verify(stage.folder).damages
    assert "part-00000.txt" in damage.path and "is not what was written" in damage.trouble
    flip(Path(stage.folder) / "parts.json", 5)
    with pytest.raises(layout.ManifestError, match="parts.json does not match its manifest; remove the stage"):
        verify(stage.folder)
    with pytest.raises(LookupError, match="is not a finished stage"):
        verify(str(tmp_path))
    assert issubclass(NotFinishedError, LookupError)

"""The one reader of a home: stages by key and by name, what they were made of, and those that cannot be read."""

from pathlib import Path

import pytest

from gristmill.storage import checked_json, files, layout, parquet
from gristmill.storage.contents import sum_counts
from gristmill.storage.home import FinishedStage, Home, open_stage, verify
from gristmill.storage.schema import LEDGER


def count(step: str, arrived: int, left: int, **tallies: dict[str, int]) -> dict:
    characters = {"characters_in": 10 * arrived, "characters_out": 10 * left}
    return {"step": step, "rows_in": arrived, "rows_out": left, **characters, "drops": {}, **tallies}


class Written:
    """A home that a test writes."""

    def __init__(self, address: str):
        self.address = address

    def stage(self, name: str, key: str, shards: list[list[dict]] | None = None, **given) -> str:
        """A finished stage; `shards`: of each the counts of its steps."""
        folder = layout.stage_folder(self.address, name, key)
        records = [
            {"rows_in": steps[0]["rows_in"], "rows_out": steps[-1]["rows_out"], "steps": steps, "shard": number}
            for number, steps in enumerate(shards or [])
        ]
        parts = [layout.Part("make", number, record, {}) for number, record in enumerate(records)]
        identity = {"stage": name, "key": key, "version": 1, "record": {}, "inputs": {}, "read": {}, "result": {}}
        # the list need not be in the order of the shards
        layout.write_manifest(folder, identity | given, parts[::-1])
        for number in range(len(parts)):
            parquet.write_table(layout.part(folder, number), LEDGER.empty_table())
        return folder


@pytest.fixture
def home(tmp_path) -> Home:
    """Documents, rules on them, cuts into their texts, rules on these; one that was begun; two that are unreadable."""
    written = Written(str(tmp_path))
    shards = [[count("extract", 5, 4, drops={"empty": 1})], [count("extract", 2, 2)]]
    written.stage("documents", "d0", shards, record={"steps": [{"step": "c4"}]}, result={"seen": 7})
    given = {"documents": "d0", "kept": "d0", "measured 0": "d0"}
    written.stage("rules", "r0", [[count("c4", 6, 3)]], inputs=given)
    given = {"documents": "d0", "kept": "r0"}
    written.stage("edited", "e0", [[count("pii", 3, 3, edits={"email": 2})]], inputs=given)
    given = {"documents": "e0", "kept": "e0", "measured 0": "d0", "measured 1": "e0", "measured 2": "gone"}
    written.stage("rules", "r1", [[count("ccnet", 3, 1)]], inputs=given)
    written.stage("model", "m0", inputs={"mixture": "gone"})
    for number in range(3):
        layout.mark_done(
            layout.stage_folder(str(tmp_path), "tokens", "t0"), "encode", number, {"record": {}, "files": {}}
        )
    checked_json.write(str(tmp_path / "stages/rules-old/manifest.json"), {"stage": "rules", "format": 5})
    files.write_bytes(str(tmp_path / "stages/tokenizer-torn/manifest.json"), b'{"format":')
    return Home(str(tmp_path))


def labels(stages) -> list[str]:
    return [stage.label for stage in stages]


def test_stages_are_found_by_name_label_and_key(home):
    assert labels(home.stages()) == ["documents-d0", "edited-e0", "model-m0", "rules-r0", "rules-r1"]
    assert labels(home.stages("rules")) == ["rules-r0", "rules-r1"]
    assert labels(home.stages("rules-r1")) == ["rules-r1"]
    assert home.stages("nothing") == []
    assert home.stage("e0") == open_stage(home.stage("e0").folder)
    assert home.find("gone") is None
    with pytest.raises(LookupError, match="no finished stage with the key gone"):
        home.stage("gone")


def test_an_unfinished_stage_has_its_finished_jobs_counted(home):
    [begun] = home.unfinished()
    assert (begun.label, begun.jobs_done, begun.parts) == ("tokens-t0", 3, ())
    assert home.unfinished("rules") == []
    with pytest.raises(LookupError, match="tokens-t0 is not a finished stage"):
        open_stage(begun.folder)


def test_a_stage_of_another_version_does_not_hide_the_others(home):
    older, torn = home.unreadable()
    assert (older.label, torn.label) == ("rules-old", "tokenizer-torn")
    assert "another version of gristmill" in older.trouble and "rules-old/manifest.json" in older.trouble
    assert "is not what was written" in torn.trouble
    with pytest.raises(layout.ManifestError, match="another version"):
        home.stages("rules-old")
    with pytest.raises(layout.ManifestError, match="is not what was written; remove"):
        home.stages("tokenizer")


def test_what_a_manifest_holds(home):
    stage = home.stage("d0")
    assert (stage.settings, stage.inputs, stage.result) == ({"steps": [{"step": "c4"}]}, {}, {"seen": 7})
    assert stage.step_counts == sum_counts([[count("extract", 5, 4, drops={"empty": 1})], [count("extract", 2, 2)]])
    assert [record["shard"] for record in stage.part_records] == [0, 1]
    assert stage.parts == (stage.part(0), stage.part(1))
    assert stage.ledger(1).endswith("documents-d0/ledger/part-00001.parquet")
    assert stage.edits(1).endswith("documents-d0/edits/part-00001.parquet")
    assert [home.stage(key).counts_documents for key in ("d0", "r0", "m0")] == [True, True, False]
    assert [home.stage(key).edits_texts for key in ("d0", "e0")] == [False, True]


def test_stages_know_what_they_were_made_of(home):
    def keys(stages: list[FinishedStage | None]) -> list[str | None]:
        return [stage and stage.key for stage in stages]

    first, last = home.stage("r0"), home.stage("r1")
    assert keys([first.documents, first.selection, last.documents, last.selection]) == ["d0", "d0", "e0", "e0"]
    assert keys([home.stage("d0").documents, home.stage("m0").selection]) == [None, None]
    assert keys(list(last.measured)) == ["d0", "e0"]


def test_behind_a_stage_is_what_read_its_texts_or_these_as_they_were_cut(home):
    assert sorted(labels(home.derived_from(home.stage("d0")))) == ["edited-e0", "rules-r0", "rules-r1"]
    assert labels(home.derived_from(home.stage("e0"))) == ["rules-r1"]
    assert list(home.derived_from(home.stage("r0"))) == []


def test_a_home_is_read_as_it_is_when_it_is_first_asked(home):
    assert len(home.stages()) == 5
    Written(home.address).stage("model", "m1")
    assert len(home.stages()) == 5 and len(Home(home.address).stages()) == 6


def test_an_empty_home_has_no_stages(tmp_path):
    assert (Home(str(tmp_path)).stages(), Home(str(tmp_path / "none")).unfinished()) == ([], [])


def test_stages_of_a_format_that_cannot_be_read_are_named(tmp_path, caplog):
    written = Written(str(tmp_path))
    checked_json.write(str(tmp_path / "stages/rules-old/manifest.json"), {"stage": "rules", "format": 5})
    with pytest.raises(layout.ManifestError, match="1 stages .* cannot be read, such as rules-old: .* has format 5"):
        Home(written.address).check_readable()
    written.stage("documents", "d0")
    Home(written.address).check_readable()
    assert "run its recipe again" in caplog.messages[0]


def test_marks_of_jobs_are_compared_with_the_list_of_parts(tmp_path):
    """A reader of a single shard knows it by its mark."""
    folder = layout.stage_folder(str(tmp_path), "tokens", "0123456789abcdef")
    records = [{"tokens": number} for number in range(3)]
    for number, record in enumerate(records):
        layout.mark_done(folder, "encode", number, {"record": record, "files": {}})
    parts = [layout.Part("encode", number, record, {}) for number, record in enumerate(records)]
    layout.write_manifest(folder, {"stage": "tokens", "key": "0123456789abcdef", "record": {}, "inputs": {}}, parts)
    assert not verify(folder).damages
    first, second, third = (Path(layout.done_path(folder, "encode", number)) for number in range(3))
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    third.unlink()
    found = [(damage.path, damage.trouble) for damage in verify(folder).damages]
    exchanged = "is not what was written"
    assert found == [(str(first), exchanged), (str(second), exchanged), (str(third), "is missing")]
    first.write_bytes(contents[0])
    second.write_bytes(contents[1])
    layout.mark_done(folder, "encode", 2, {"record": {"tokens": 7}, "files": {}})
    assert [damage.trouble for damage in verify(folder).damages] == ["does not match the list of parts"]

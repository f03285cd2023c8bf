"""Whatever is run, forgotten and collected, in whatever order: nothing that a recorded run needs is lost, and what is
made again has the same contents."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gristmill.flows.curation import curate
from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.runs import RunRecorder, all_runs, forget, runs_of
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.diff.targets import diff
from gristmill.flows.reports.finished import finished
from gristmill.flows.reports.recorded import changes
from gristmill.flows.run import garbage
from gristmill.flows.stages.tokens import corpus_tokenizer, tokens
from gristmill.storage import checked_json, layout
from gristmill.storage.home import verify
from gristmill.tasks.engine.make import NotFinishedError, StageResult, restore
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.tokenizer import Tokenizer
from tests.corpora import build_in

WORDS = "mill river grain flour stone wheel baker bread field harvest winter market village bridge horse cart".split()


class Home:
    """A home in which a small recipe is run in this process, with some settings of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, str(folder / "home")
        rows = [{"text": " ".join(WORDS[(i * 7 + j * (1 + i % 5)) % 16] for j in range(4 + i % 9))} for i in range(60)]
        rows = [{**row, "url": f"https://a.example/{i}"} for i, row in enumerate(rows)]
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "gone.txt").write_text("https://a.example/1\n")

    def recipe(self, characters: int, takedown: bool = False, limit: int | None = None):
        source = {"name": "web", "jsonl": [str(self.folder / "rows.jsonl")], "url_column": "url"}
        steps = [
            {"step": "extract"},
            {"step": "where", "keep": f"characters > {characters}"},
            {"step": "content_dedup"},
        ]
        lists = {"takedowns": [str(self.folder / "gone.txt")]} if takedown else {}
        return load({"name": "small", "sources": [source], "steps": steps, "limit": limit, **lists})

    def run(self, characters: int, flow: str, takedown: bool = False, limit: int | None = None) -> dict[str, str]:
        """Run the corpus, or the tokens, too; the contents of its stages by label. Restores what was collected."""
        recipe = self.recipe(characters, takedown, limit)
        recorder = RunRecorder(self.home, recipe.name, flow=flow, recipe=recipe.model_dump(mode="json"))
        inner = build_in(self.home)
        made: list[StageResult] = []

        def build(spec) -> StageResult:
            recorder.add(spec.label(self.home))
            made.append(inner(spec))
            return made[-1]

        context = RunContext(MachineSettings(home=self.home), build, outside=recorder.outside)
        *_, last = curate(context, recipe)
        if flow == "tokens":
            mixture = Mixture(strategy="proportional")
            model = corpus_tokenizer(context, last.left, Tokenizer(vocab_size=320, sample_bytes=10_000), mixture, 1)
            tokens(context, last.left, model)
        for stage in made:
            restore(self.home, stage, inner.keywords["executor"], inner.keywords["progress"])
        recorder.finished()
        return {stage.label: stage.contents for stage in made}


class Sequences(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.place = TemporaryDirectory()
        self.home = Home(Path(self.place.name))
        self.contents: dict[str, str] = {}

    @rule(characters=st.sampled_from([10, 30, 40]), flow=st.sampled_from(["corpus", "tokens"]), takedown=st.booleans())
    def run(self, characters: int, flow: str, takedown: bool) -> None:
        made = self.home.run(characters, flow, takedown)
        for label, contents in made.items():
            assert self.contents.setdefault(label, contents) == contents, "the same, whenever it is made"

    @rule(number=st.integers(0, 9))
    def forget(self, number: int) -> None:
        if runs := all_runs(self.home.home):
            forget(self.home.home, runs[number % len(runs)])

    @rule(days=st.sampled_from([0, 0, 7]))
    def collect(self, days: int) -> None:
        for one in garbage.find(self.home.home, days).garbage:
            if one.kind != "kernels":
                assert garbage.remove(self.home.home, one)

    @invariant()
    def every_recorded_run_has_its_stages(self) -> None:
        if hasattr(self, "home"):
            for label in {label for run in all_runs(self.home.home) for label in run.stages}:
                folder = f"{self.home.home}/stages/{label}"
                manifest = layout.manifest(folder)
                assert manifest is not None and not manifest.get(layout.COLLECTED), label
                assert not verify(folder).damages

    def teardown(self) -> None:
        if hasattr(self, "place"):
            self.place.cleanup()


TestSequences = pytest.mark.extended(Sequences.TestCase)
TestSequences.settings = settings(max_examples=6, stateful_step_count=8, deadline=None)


@pytest.mark.extended
def test_a_run_and_then_its_corpus_keeps_the_rest(tmp_path):
    home = Home(tmp_path)
    whole = home.run(30, "tokens")
    home.run(30, "corpus")
    assert [run.flow for run in runs_of(home.home, "small")] == ["corpus", "tokens"]
    assert [one for one in garbage.find(home.home, 0).garbage if one.kind != "kernels"] == []
    assert {label for run in all_runs(home.home) for label in run.stages} == set(whole)


def test_a_stage_whose_input_was_collected_is_found_and_restores_it_only_to_make_another(tmp_path):
    home = Home(tmp_path)
    whole = home.run(30, "tokens")
    [run] = runs_of(home.home, "small")
    forget(home.home, run)
    for one in garbage.find(home.home, 0).garbage:
        garbage.remove(home.home, one)
    context = RunContext(MachineSettings(home=home.home), build_in(home.home))
    *_, last = curate(context, home.recipe(30))
    assert all(stage.is_collected and stage.reused for stage in last.left.stages), "found by their manifests"
    *_, other = curate(context, home.recipe(40))
    by_name = {stage.name: stage for stage in other.left.stages}
    assert not by_name["rules"].reused
    extracted = layout.manifest(by_name["documents"].folder)
    assert extracted is not None and not extracted.get(layout.COLLECTED), "what was read was made again"
    assert layout.contents(extracted) == whole[by_name["documents"].label]


def test_a_takedown_releases_the_runs_that_have_the_document(tmp_path):
    home = Home(tmp_path)
    before = home.run(30, "tokens")
    after = home.run(30, "tokens", takedown=True)
    [left] = runs_of(home.home, "small")
    assert set(left.stages) == set(after)
    gone = {one.label for one in garbage.find(home.home, 0).garbage if one.kind != "kernels"}
    assert gone == set(before) - set(after) and any(label.startswith("tokens-") for label in gone)


def test_another_threshold_with_the_same_list_releases_no_run(tmp_path):
    home = Home(tmp_path)
    whole = home.run(30, "tokens", takedown=True)
    home.run(40, "corpus", takedown=True)
    assert [run.flow for run in runs_of(home.home, "small")] == ["corpus", "tokens"]
    gone = {one.label for one in garbage.find(home.home, 0).garbage if one.kind != "kernels"}
    assert not gone & set(whole)


def test_readers_open_the_run_that_was_recorded_and_name_what_differs(tmp_path, caplog):
    home, settings_ = Home(tmp_path), MachineSettings(home=str(tmp_path / "home"))
    home.run(30, "corpus")
    caplog.clear()  # what the run itself logs depends on the level that is set
    rows = finished(home.recipe(30), settings_).corpus.rows
    assert not caplog.messages
    assert finished(home.recipe(40), settings_).corpus.rows == rows
    [said] = caplog.messages
    assert "has changed since its run of" in said and "steps[1].keep was characters > 30, is characters > 40" in said
    home.run(40, "corpus")
    caplog.clear()
    assert finished(home.recipe(30), settings_).corpus.rows == rows, "two recipes of one name: each has its own run"
    assert finished(home.recipe(40), settings_).corpus.rows < rows and not caplog.messages
    assert finished(home.recipe(10), settings_).corpus.rows < rows and caplog.messages, "the newest run"


def test_an_export_is_no_change_of_a_recipe(tmp_path):
    home = Home(tmp_path)
    home.run(30, "corpus")
    [run] = runs_of(home.home, "small")
    assert run.recipe is not None
    exported = run.recipe | {"export": {"to": "documents", "format": "jsonl"}}
    assert not changes(exported, home.recipe(30))
    assert changes(exported | {"seed": 2}, home.recipe(30)) == [("seed", 2, 1)]


def test_a_key_that_came_with_a_later_release_is_no_change_of_a_recipe(tmp_path):
    home = Home(tmp_path)
    home.run(30, "corpus")
    [run] = runs_of(home.home, "small")
    assert run.recipe is not None
    before = {name: value for name, value in run.recipe.items() if name not in ("seed", "limit")}
    before["steps"] = [
        {name: value for name, value in step.items() if name != "keep_order"} for step in before["steps"]
    ]
    assert not changes(before, home.recipe(30))
    assert [name for name, *_ in changes(before, home.recipe(30).model_copy(update={"seed": 7}))] == ["seed"]


def test_a_run_on_other_sources_is_not_read(tmp_path, caplog):
    home, settings_ = Home(tmp_path), MachineSettings(home=str(tmp_path / "home"))
    home.run(30, "corpus")
    caplog.clear()
    recipe = home.recipe(30)
    [web] = recipe.sources
    other = recipe.model_copy(update={"sources": (web.model_copy(update={"jsonl": ("/another/crawl.jsonl",)}),)})
    with pytest.raises(NotFinishedError, match="the newest run of that name reads others"):
        finished(other, settings_)
    both = recipe.model_copy(update={"sources": (*other.sources, *recipe.sources)})
    options = recipe.model_copy(update={"sources": (web.model_copy(update={"url_column": None}),)})
    for changed in (both, options):
        assert finished(changed, settings_).corpus.rows
    assert len(caplog.messages) == 2 and "sources[0].url_column was url, is None" in caplog.messages[-1]


def test_the_newest_run_is_read_if_it_differs_only_in_its_limit(tmp_path, caplog):
    home, settings_ = Home(tmp_path), MachineSettings(home=str(tmp_path / "home"))
    home.run(30, "corpus")
    rows = finished(home.recipe(30), settings_).corpus.rows
    home.run(30, "corpus", limit=20)
    caplog.clear()
    assert 0 < finished(home.recipe(30), settings_).corpus.rows < rows
    assert "limit was 20, is None" in caplog.messages[0]


def test_a_recipe_that_was_never_run_is_not_compared_by_the_run_of_another(tmp_path):
    home, settings_ = Home(tmp_path), MachineSettings(home=str(tmp_path / "home"))
    home.run(30, "corpus")
    assert diff(home.recipe(30), home.recipe(30), settings_).empty
    with pytest.raises(NotFinishedError, match="the recipe small has changed since its run"):
        diff(home.recipe(30), home.recipe(40), settings_)
    home.run(40, "corpus")
    assert not diff(home.recipe(30), home.recipe(40), settings_).empty


def test_a_default_of_another_release_is_not_a_change_of_the_recipe(tmp_path):
    """A run of an earlier release is planted, by its record: it had another default of `content_dedup`."""
    home, settings_ = Home(tmp_path), MachineSettings(home=str(tmp_path / "home"))
    home.run(30, "corpus")
    [path] = (tmp_path / "home" / "runs" / "small").glob("*.json")
    run = checked_json.read(str(path))
    run["recipe"]["steps"][2]["partitions"] = 2
    checked_json.write(str(path), run)
    with pytest.raises(NotFinishedError, match="the recipe small has changed since its run"):
        diff(home.recipe(30), home.recipe(30), settings_)
    checked_json.write(str(path), run | {"release": "0.0.1"})
    assert diff(home.recipe(30), home.recipe(30), settings_).empty
    with pytest.raises(NotFinishedError, match="the recipe small has changed since its run"):
        diff(home.recipe(40), home.recipe(40), settings_)


def test_readers_open_a_run_of_another_version_and_say_so(tmp_path, caplog, monkeypatch):
    from gristmill.tasks.dedup.exact import ContentDedup

    home, settings_ = Home(tmp_path), MachineSettings(home=str(tmp_path / "home"))
    home.run(30, "corpus")
    caplog.clear()  # what the run itself logs depends on the level that is set
    rows = finished(home.recipe(30), settings_).corpus.rows
    monkeypatch.setattr(ContentDedup, "work_version", 2)
    assert finished(home.recipe(30), settings_).corpus.rows == rows
    [said] = caplog.messages
    assert "is read unchanged: its step content_dedup was 1, is 2" in said


@pytest.mark.parametrize("given", ["small", "id"])
def test_what_is_forgotten_is_named(tmp_path, given, monkeypatch, capsys):
    import sys

    from gristmill.flows.cli import main

    home = Home(tmp_path)
    home.run(30, "corpus")
    [run] = runs_of(home.home, "small")
    monkeypatch.setenv("GRISTMILL_HOME", home.home)

    def command(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["gristmill", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        return capsys.readouterr().out

    assert run.label in command("home", "forget") and runs_of(home.home, "small")
    assert "forgotten" in command("home", "forget", run.label if given == "id" else "small")
    assert runs_of(home.home, "small") == []

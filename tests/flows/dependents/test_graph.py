"""What depends on a thing, against lists that were written by hand, in a home of planted stages."""

import json
import re

import pytest
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.explore.dependents.affected import Prices, affected
from gristmill.flows.machine.runs import RunRecorder, all_runs
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.dependents.graph import EQUAL, READS, TRUNK, graph_of
from gristmill.flows.reports.dependents.things import recognize
from gristmill.storage import checked_json, files, layout
from gristmill.storage.fingerprint import fingerprint
from tests.flows.dependents.planted import decision, run, stage


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Two recipes that share an extraction, a third one that shares nothing, and a branch of the first one's model."""
    home = str(tmp_path_factory.mktemp("home"))
    model = tmp_path_factory.mktemp("models") / "language.bin"
    model.write_bytes(b"a model")
    named = {"model": str(model), "model_checksum": files.checksum(str(model))}
    web = stage(home, "documents", {"files": "f" * 32}, versions={"extract": 2}, says="web")
    pdf = stage(home, "documents", {"files": "e" * 32}, versions={"extract": 3}, says="pdf")
    scored = stage(home, "signals", {"documents": web}, versions={"language": 1}, values={"steps": [named]})
    rules = stage(home, "rules", {"documents": web, "measured 0": scored}, says="a")
    other = stage(home, "rules", {"documents": web}, says="b")
    tokens = {name: stage(home, "tokens", {"kept": kept}, says=name) for name, kept in (("a", rules), ("b", other))}
    tokens["c"] = stage(home, "tokens", {"documents": pdf}, says="c")
    mixtures = {name: stage(home, "mixture", {"tokens": one}, says=name) for name, one in tokens.items()}
    trunk = stage(home, "model", {"mixture": mixtures["a"]}, says="trunk")
    branch = stage(home, "model", {"mixture": mixtures["c"]}, trunk={"key": trunk.key, "step": 4})
    proxies = {name: stage(home, "proxy", {"mixture": one}, says=name) for name, one in mixtures.items()}
    made = {"web": web, "pdf": pdf, "scored": scored, "rules": rules, "other": other, "trunk": trunk, "branch": branch}
    made |= {f"tokens {name}": one for name, one in tokens.items()}
    made |= {f"mixture {name}": one for name, one in mixtures.items()}
    made |= {f"proxy {name}": one for name, one in proxies.items()}
    run(home, "a", web, scored, rules, tokens["a"], mixtures["a"], trunk)
    run(home, "b", web, other, tokens["b"], mixtures["b"])
    run(home, "c", pdf, tokens["c"], mixtures["c"], branch)
    decision(home, "a", proxies["a"], proxies["b"])
    decision(home, "c", proxies["c"])
    return home, made, str(model)


A = {"rules", "tokens a", "mixture a", "trunk", "branch", "proxy a"}
B = {"other", "tokens b", "mixture b", "proxy b"}


@pytest.mark.parametrize(
    ("thing", "stages", "runs", "decisions"),
    [
        ("extract@2", {"web", "scored"} | A | B, {"a", "b", "c"}, {"a"}),
        ("extract@3", {"pdf", "tokens c", "mixture c", "branch", "proxy c"}, {"c"}, {"c"}),
        ("language@1", {"scored"} | A, {"a", "c"}, {"a"}),
        ("language", {"scored"} | A, {"a", "c"}, {"a"}),
        ("MODEL", {"scored"} | A, {"a", "c"}, {"a"}),
        ("DIGEST", {"scored"} | A, {"a", "c"}, {"a"}),
        ("tokens b", {"tokens b", "mixture b", "proxy b"}, {"b"}, {"a"}),
        ("trunk", {"trunk", "branch"}, {"a", "c"}, set()),
    ],
)
def test_what_depends_on_a_thing_is_what_a_person_lists(planted, thing, stages, runs, decisions):
    home, made, model = planted
    text = made[thing].label if thing in made else thing
    text = {"MODEL": model, "DIGEST": files.checksum(model)}.get(thing, text)
    found = affected(MachineSettings(home=home), text)
    assert {one.stage for one in found.stages} == {made[name].label for name in stages}
    assert {one.run.partition("/")[0] for one in found.runs} == runs
    assert {one.base for one in found.verdicts} == decisions
    assert {one.stage for one in found.trainings} == {
        made[name].label for name in stages if name in ("trunk", "branch") or name.startswith("proxy")
    }
    assert found.since and not found.exports and all(one.made for one in found.stages)


def test_edges_say_how_a_stage_depends(planted, tmp_path):
    home, made, _ = planted
    edges = graph_of(home).edges
    assert edges[made["web"].label][made["rules"].label].how == READS
    assert edges[made["trunk"].label][made["branch"].label].how == TRUNK


def test_equal_contents_count_for_a_bad_stage_and_not_for_a_bad_version(tmp_path):
    settings = MachineSettings(home=str(tmp_path))
    first = stage(settings.home, "documents", {"files": "a" * 32}, versions={"extract": 1}, says="same")
    second = stage(settings.home, "documents", {"files": "a" * 32}, versions={"extract": 2}, says="same")
    reader = stage(settings.home, "rules", {"documents": first})
    assert first.contents == second.contents and first.label != second.label
    assert [one.stage for one in affected(settings, "extract@2").stages] == [second.label]
    assert {one.stage for one in affected(settings, second.label).stages} == {first.label, second.label, reader.label}
    # where what was read is gone, what equals it takes its place
    files.remove(first.folder)
    assert graph_of(settings.home).edges[second.label][reader.label].how == EQUAL
    [_, row] = affected(settings, "extract@2").stages
    assert (row.stage, row.why) == (reader.label, f"reads equal contents {second.label}")


def test_a_collected_stage_still_leads_to_what_was_made_of_it(tmp_path):
    home = str(tmp_path)
    first = stage(home, "documents", {"files": "a" * 32})
    second = stage(home, "rules", {"documents": first})
    third = stage(home, "tokens", {"kept": second})
    layout.collect(second.folder)
    found = affected(MachineSettings(home=home), first.label)
    assert [one.stage for one in found.stages] == [first.label, second.label, third.label]
    assert [one.state for one in found.stages] == ["finished", "collected", "finished"]
    assert found.cost.unknown == (second.label,)


def test_what_cannot_be_read_is_listed(tmp_path):
    home = str(tmp_path)
    first = stage(home, "documents", {"files": "a" * 32})
    gone = stage(home, "rules", {"documents": first})
    last = stage(home, "tokens", {"kept": gone})
    files.remove(gone.folder)
    broken = stage(home, "rules", {"documents": first}, says="broken")
    files.write_bytes(f"{broken.folder}/manifest.json", b"{}")
    path = run(home, "web", first)._path
    files.write_bytes(path, b"{}")
    files.write_bytes(f"{home}/decisions/bad.json", b"{}")
    old = {"base": "web", "verdicts": []}
    checked_json.write(f"{home}/decisions/old.json", old)
    gaps = "\n".join(affected(MachineSettings(home=home), first.label).gaps)
    assert f"{gone.label} is not in the home, so what it was made from is unknown; {last.label} reads it" in gaps
    assert f"{broken.label} cannot be read, so its inputs are unknown" in gaps
    assert "a recorded run cannot be read" in gaps and "bad.json cannot be read" in gaps
    assert "old.json does not name its training runs" in gaps


def test_an_export_is_found_where_its_run_has_written_it(tmp_path):
    home, to = str(tmp_path / "home"), str(tmp_path / "exported")
    first = stage(home, "documents", {"files": "a" * 32})
    kept = stage(home, "rules", {"documents": first})
    written = layout.manifest(stage(str(tmp_path / "elsewhere"), "export", {"kept": kept}).folder)
    manifest = {name: value for name, value in written.items() if name not in ("contents", "counts", "parts", "format")}
    layout.write_manifest(to, manifest, ())
    label = f"export-{written['key']}"
    recorder = RunRecorder(home, "web", flow="corpus", recipe={"name": "web"})
    recorder.add(first.label, kept.label, label)
    recorder.exported(label, to)
    recorder.finished()
    [found] = affected(MachineSettings(home=home), kept.label).exports
    assert (found.address, found.label, found.reads) == (to, label, (kept.label,))
    # a run that writes another export does not let the first be forgotten
    other = RunRecorder(home, "web", flow="corpus", recipe={"name": "web"})
    other.add(first.label, kept.label, label)
    other.exported(label, f"{to}-2")
    other.finished()
    assert {address for each in all_runs(home) for address in each.exports.values()} == {to, f"{to}-2"}
    report = affected(MachineSettings(home=home), kept.label)
    assert any(gap.endswith(f"is not in {to}-2 any more; copies of it are not known") for gap in report.gaps)
    files.remove(f"{to}/manifest.json")
    files.write_bytes(f"{to}/data.txt", b"x")
    report = affected(MachineSettings(home=home), kept.label)
    assert [one.address for one in report.exports] == [to] and any("has no manifest.json" in gap for gap in report.gaps)


def test_a_name_that_nothing_has_is_an_error_with_the_kinds(planted):
    home, *_ = planted
    with pytest.raises(LookupError, match="nothing in .* is called mill. Give a stage as `home status` lists it"):
        affected(MachineSettings(home=home), "mill")
    with pytest.raises(LookupError, match="no stage in .* has the step extract@9"):
        affected(MachineSettings(home=home), "extract@9")
    graph = graph_of(home)
    assert recognize(graph, "https://a.example/b").kind == "url" and recognize(graph, "a.example").kind == "host"
    assert recognize(graph, "0123456789abcdef").kind == "document"
    assert recognize(graph, "tokens").kind == "stage" and recognize(graph, "tokens", "host").kind == "host"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2001:db8::1", "[2001:db8::1]"),
        ("[2001:db8::1]", "[2001:db8::1]"),
        ("192.0.2.7", "192.0.2.7"),
        ("a.example:8443", "A host is written without its port: a.example"),
        ("a.example/b", "If it is the address of a page, write https://a.example/b"),
        ("numpy@2.4.6", "nothing in"),
        ("12:34:56", "nothing in"),
    ],
)
def test_a_host_is_a_name_or_an_address_and_else_the_error_says_what_to_write(planted, text, meant):
    graph = graph_of(planted[0])
    if " " not in meant:
        thing = recognize(graph, text)
        assert (thing.kind, thing.name) == ("host", meant)
        return
    with pytest.raises(LookupError, match=re.escape(meant)):
        recognize(graph, text)


def test_a_list_is_found_by_its_digest_and_else_by_its_name(tmp_path):
    """Inputs have the name of a file without its folder, before the digest."""
    home, lists = str(tmp_path / "home"), tmp_path / "lists"
    (lists / "other").mkdir(parents=True)
    robots, other = lists / "robots.jsonl", lists / "other" / "robots.jsonl"
    robots.write_text("one")
    other.write_text("two")
    sites = {
        path: stage(
            home, "site_files", {"list 0": fingerprint(str(path), str(tmp_path / "notes"))}, says=path.parent.name
        )
        for path in (robots, other)
    }
    remote = stage(home, "site_files", {"list 0": "https://lists.example/a/robots.txt size=3 ETag=x"}, says="remote")
    settings = MachineSettings(home=home)

    def roots(text: str) -> set[str]:
        return {*affected(settings, text).roots}

    assert roots(str(robots)) == {sites[robots].label} and roots(str(other)) == {sites[other].label}
    assert roots("robots.jsonl") == {one.label for one in sites.values()}
    assert roots("https://lists.example/a/robots.txt") == roots("robots.txt") == {remote.label}
    robots.write_text("three")  # the bad file was replaced
    assert roots(str(robots)) == {one.label for one in sites.values()}
    with pytest.raises(LookupError, match="no document in .* matches the host lists.example"):
        affected(settings, "lists.example")


def test_the_command_prints_the_report_and_json(planted, monkeypatch):
    home, made, _ = planted
    monkeypatch.setenv("GRISTMILL_HOME", home)
    told = CliRunner().invoke(app, ["home", "affected", "language@1", "--json"], catch_exceptions=False)
    value = json.loads(told.stdout)
    assert len(value["stages"]) == 7 and value["roots"] == [made["scored"].label]
    text = CliRunner().invoke(app, ["home", "affected", "language@1"], catch_exceptions=False).stdout
    assert "step language@1: 7 stages, 2 trained models, 1 proxy run, 2 recorded runs, 0 exports, 1 verdict" in text
    cost = affected(MachineSettings(home=home), "language@1", prices=Prices(core_hour=2.0)).cost
    assert cost.price == pytest.approx(2 * cost.core_hours)
    assert CliRunner().invoke(app, ["home", "affected"]).exit_code == 2

"""What `scale --plan` says ahead of all work."""

from typer.testing import CliRunner

from gristmill.flows.cli.app import app


def test_the_plan_of_a_grid_says_what_judges_or_that_nothing_does(tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "2000")
    (tmp_path / "a.jsonl").write_text('{"text": "One."}\n')
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"name: r\nsources: [{{name: web, jsonl: ['{tmp_path}/a.jsonl']}}]\nsteps: [{{step: extract}}]\n")
    command = ["decide", "scale", str(recipe), "--sizes", "80k,150k", "--tokens", "100k,200k", "--plan"]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0, shown.output
    assert "cannot train these runs yet: no evaluation set to judge by" in shown.output
    shown = CliRunner().invoke(app, [*command, "--judge", "web"])
    assert shown.exit_code == 0 and "judged by web" in shown.output
    shown = CliRunner().invoke(app, [*command, "--judge", "wob"])
    assert "unknown evaluation set wob" in shown.output and "did you mean `web`" in shown.output
    assert not (tmp_path / "home" / "stages").exists()

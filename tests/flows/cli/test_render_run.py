"""The end of a run as it is printed: addresses never with a password."""

from types import SimpleNamespace

from gristmill.flows.cli.app import COMMANDS
from gristmill.flows.cli.results import mixture_line, next_commands, run_pages, training_lines
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.run import MixedSource
from gristmill.flows.run import server


def test_mixture_and_training_are_a_line_each():
    result = {"parameters": 1_328_256, "steps": 240, "tokens": 491_520}
    result |= {"unigram/loss": 6.7144, "unigram/bits_per_byte": 2.66871, "heldout/loss": 5.5763}
    result |= {"heldout/bits_per_byte": 2.2163, "heldout/web/bits_per_byte": 2.2163, "survivors/bits_per_byte": 2.1}
    result |= {"survivors/web/bits_per_byte": 2.1, "evaluation/wikipedia/bits_per_byte": 1.9}
    mixture = [MixedSource("web", 0.7, 1.04), MixedSource("reference", 0.3, 0.371)]
    causal, masked = (SimpleNamespace(training=SimpleNamespace(objective=name)) for name in ("causal", "masked"))
    report = SimpleNamespace(
        result=result, mixture=mixture, training_losses=[8.28, 7.0, 5.37], recipe=causal, data=None
    )
    assert [mixture_line(report), *training_lines(report)] == [
        "mixture: web 70% (1.04 epochs), reference 30% (0.37 epochs)",
        "model: 1,328,256 parameters, 240 steps, 491,520 tokens",
        "training loss: 8.2800 at the first step, 5.3700 at the last",
        "unigram model: 6.7144 nats/token, 2.6687 bits/byte",
        "trained model: 5.5763 nats/token, 2.2163 bits/byte (both on held-out documents as extracted)",
        "trained model: 2.1000 bits/byte on held-out documents that the recipe keeps",
        "trained model: 1.9000 bits/byte on wikipedia",
    ]
    report.recipe = masked
    assert training_lines(report)[3].endswith("(of masked tokens only, both on held-out documents as extracted)")


def test_servers_are_named_by_address_or_shown_by_a_command(monkeypatch, tmp_path):
    served = MachineSettings(mlflow_uri="https://me:hunter2@mlflow.example")
    database = MachineSettings(mlflow_uri="postgresql://me:hunter2@db/mlflow", home=str(tmp_path / "a home"))
    monkeypatch.setattr(server, "named", lambda: None)
    assert list(run_pages(served)) == ["MLflow: https://mlflow.example", "gristmill ui"]
    shown = f"gristmill ui --home '{tmp_path}/a home'"
    assert list(run_pages(database)) == list(run_pages(database, trained=False)) == [shown]
    monkeypatch.setattr(server, "named", lambda: ("http://u:p@prefect:4200/api", "http://u:p@prefect:4200", "u:p"))
    assert list(run_pages(served)) == ["Prefect: http://prefect:4200", "MLflow: https://mlflow.example"]
    assert list(run_pages(database)) == ["Prefect: http://prefect:4200", shown]
    assert list(run_pages(database, trained=False)) == ["Prefect: http://prefect:4200"]


def test_next_commands_can_be_typed_and_fit_what_was_made():
    def commands(trained=None, exported=None, limit=None, tokens=None, objective="causal", given=()) -> list[str]:
        recipe = SimpleNamespace(name="web", limit=limit, training=SimpleNamespace(objective=objective))
        run = SimpleNamespace(recipe=recipe, trained=trained, exported=exported, tokens=tokens)
        return [*next_commands(run, "recipe.yaml", given)]

    looks = ["gristmill browse recipe.yaml", "gristmill report recipe.yaml"]
    assert commands() == [*looks, "gristmill export documents recipe.yaml --to web-documents"]
    assert commands(limit=100) == [*looks, "gristmill export documents recipe.yaml --to web-documents --limit 100"]
    assert commands(tokens=9000, limit=100) == [*looks, "gristmill run recipe.yaml --limit 100"]
    _, report = looks
    assert commands(trained=object()) == ["gristmill ui", report, "gristmill export model recipe.yaml --to web-model"]
    masked = commands(trained=object(), objective="masked")
    assert masked == ["gristmill ui", report, "gristmill train evaluate recipe.yaml"], "transformers has no such model"
    assert commands(exported=object()) == looks, "its documents are exported already"
    given, more = ["minhash.threshold=0.9", "language.keep=[en, de]"], " --set minhash.threshold=0.9"
    more += " --set 'language.keep=[en, de]'"
    assert commands(given=given) == [f"{look}{more}" for look in looks], "the export has no --set"
    assert commands(tokens=9000, given=given)[2] == f"gristmill run recipe.yaml{more}"
    assert commands(trained=object(), given=given) == ["gristmill ui", f"{report}{more}"]
    for line in (*commands(limit=100), *commands(trained=object())):
        name, *_ = line.removeprefix("gristmill ").split(" recipe.yaml")
        group, _, command = name.rpartition(" ")
        assert command in COMMANDS[group]

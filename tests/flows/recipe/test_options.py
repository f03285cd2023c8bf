"""Options are declared once: a flow, a function and a command have the fields of one dataclass."""

import inspect
from dataclasses import dataclass, fields
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from gristmill.flows.cli.app import COMMANDS, Listing
from gristmill.flows.cli.options import with_options
from gristmill.flows.experiments.options import (
    AgreementOptions,
    CrawlOptions,
    DecisionOptions,
    ImportRequest,
    MixOptions,
    OtherDevice,
    PlanOptions,
    ScaleOptions,
    TransferOptions,
)
from gristmill.flows.recipe.options import integers, option, spread


@dataclass(frozen=True)
class Sums:
    numbers: list[int] = option("what is added", list, metavar="N,N,...", parser=integers)
    times: int = option("how often", 1, min=1, flag="--repeat")
    words: list[str] = option("what is said", list)
    aloud: bool = option("whether it is shouted", False)
    name: str | None = option("whose it is", None)


@spread
def add(start: int, sums: Sums, last: int = 0) -> tuple:
    """Add numbers.

    Args:
        start: first
    """
    return start, sums, last


def test_fields_are_parameters_with_their_defaults():
    assert add(1) == (1, Sums(), 0)
    assert add(1, [2, 3], words=["x"], last=5) == (1, Sums([2, 3], words=["x"]), 5)
    names = ["start", "numbers", "times", "words", "aloud", "name", "last"]
    assert list(inspect.signature(add).parameters) == names
    with pytest.raises(TypeError, match="unexpected"):
        add(1, nothing=2)
    with pytest.raises(TypeError, match="missing"):
        add()


def test_the_docstring_says_what_each_is():
    lines = inspect.getdoc(add).splitlines()
    assert lines[:4] == ["Add numbers.", "", "Args:", "    start: first"]
    assert "    times: how often" in lines


def test_a_command_has_an_option_for_each_field():
    app, calls = typer.Typer(), []

    @app.command()
    @with_options
    def command(start: Annotated[int, typer.Argument()], sums: Sums) -> None:
        calls.append((start, sums))

    def run(*words):
        return CliRunner().invoke(app, [*words], env={"COLUMNS": "120", "TERM": "dumb"})

    assert run("1").exit_code == 0 and calls.pop() == (1, Sums())
    words = ["1", "--numbers", "2,3", "--repeat", "4", "--words", "a", "--words", "b", "--aloud", "--name", "me"]
    assert run(*words).exit_code == 0
    assert calls.pop() == (1, Sums([2, 3], 4, ["a", "b"], True, "me"))
    assert "2,x is not a list of whole numbers" in run("1", "--numbers", "2,x").output
    assert run("1", "--repeat", "0").exit_code == 2
    shown = run("--help").stdout
    assert "--no-aloud" not in shown and "N,N,..." in shown and "whose it is" in shown


EXPERIMENTS = {
    "ablate": (DecisionOptions, OtherDevice),
    "mix": (MixOptions, OtherDevice),
    "scale": (ScaleOptions,),
    "agreement": (AgreementOptions, OtherDevice),
    "transfer": (TransferOptions,),
    "plan": (PlanOptions,),
    "capacity": (CrawlOptions,),
    "import": (ImportRequest,),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_commands_declare_no_option_of_the_function_behind_them(name):
    """What a command declares itself is how its result is shown or written."""
    command = Listing(name, *(COMMANDS["decide"] | COMMANDS["train"])[name]).load()
    declared = {parameter.name for parameter in command.params if parameter.param_type_name == "option"}
    shared = {each.name for group in EXPERIMENTS[name] for each in fields(group)}
    assert shared <= declared
    assert declared - shared <= {"plan", "as_json", "out", "page", "write", "rule", "look", "help"}


@pytest.mark.extended
def test_flows_have_the_same_options_and_prefect_their_descriptions():
    from prefect.utilities.callables import parameter_schema

    from gristmill.flows.experiments.decisions.ablate import ablate
    from gristmill.flows.experiments.mixtures import mix
    from gristmill.flows.experiments.scaling.scale import agreement, scale

    for flow, group in (
        (ablate, DecisionOptions),
        (mix, MixOptions),
        (scale, ScaleOptions),
        (agreement, AgreementOptions),
    ):
        properties = parameter_schema(flow).properties
        assert list(properties) == ["recipe", *(each.name for each in fields(group))]
        for each in fields(group):
            assert properties[each.name]["description"] == each.metadata["option"].description
    assert parameter_schema(ablate).required == ["recipe"]
    assert flow.parameters.required == ["recipe", "sizes", "tokens"]
    properties = parameter_schema(ablate).properties
    assert properties["pairs"]["default"] == [] and properties["bank_pairs"]["minimum"] == 0

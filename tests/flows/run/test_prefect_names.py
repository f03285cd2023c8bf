"""Prefect's own validation of the recipe, and the names of runs."""

import inspect
from uuid import uuid4

import pytest

from gristmill.flows import pipeline as flows

# isort: split
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext
from prefect.utilities.callables import parameter_schema
from prefect.utilities.names import generate_slug
from prefect.utilities.schema_tools.validation import ValidationError, validate

from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import dump, load
from gristmill.flows.run.artifacts import flow_run_name
from gristmill.flows.run.flow import recorded_flow
from gristmill.storage.remote.addresses import SecretError


@pytest.mark.extended
@pytest.mark.parametrize("name", ["corpus", "tokens", "pretrain", "pipeline"])
def test_a_recipe_is_a_word_a_path_or_the_whole_through_prefect(name, tmp_path):
    """What the server does with a deployment's parameters, and what the engine does then."""
    asked = getattr(flows, name)
    schema = asked.parameters.model_dump_for_openapi()
    demo = load("demo")
    (tmp_path / "mine.yaml").write_text(dump(demo))
    for given in ("demo", str(tmp_path / "mine.yaml"), demo.model_dump(mode="json")):
        validate({"recipe": given}, schema, raise_on_error=True)
        assert asked.validate_parameters({"recipe": given})["recipe"] == demo
    for wrong in (3, None, "", {"name": "incomplete"}, demo.model_dump(mode="json") | {"steps": 1}):
        with pytest.raises(ValidationError):
            validate({"recipe": wrong}, schema, raise_on_error=True)
    assert "sources" in schema["definitions"]["Recipe"]["properties"]  # the form


def test_the_schema_of_parameters_is_made_when_it_is_read():
    def add(number: int, others: list[float], name: str = "sum") -> None:
        """Add numbers.

        Args:
            number: the first
        """

    flow = recorded_flow(name="add")(add)
    assert flow._parameters is None and flow.description == inspect.getdoc(add)
    assert flow.parameters == parameter_schema(add)
    assert flow.parameters.properties["number"]["type"] == "integer"


@pytest.mark.parametrize("name", ["corpus", "tokens", "pretrain", "pipeline"])
def test_a_wrong_recipe_is_refused_by_its_own_error_before_prefect_writes_it_down(name, caplog):
    asked = getattr(flows, name)
    demo = load("demo").model_dump(mode="json")
    address = {"sources": [{"name": "web", "warc": ["https://me:hunter2@crawl.example/a.warc.gz"]}]}
    for wrong, error in ((demo | address, SecretError), (demo | {"sauces": "hunter2"}, RecipeError)):
        # the first is what the engine keeps of a run before anything else, the second what a served flow begins with
        for step in (asked.serialize_parameters, asked.validate_parameters):
            with pytest.raises(error):
                step({"recipe": wrong})
    assert "hunter2" not in caplog.text


def named(asked: FlowRun) -> str:
    context = FlowRunContext.model_construct(
        flow=flows.corpus, flow_run=asked, parameters={"recipe": load("demo")}, start_time=None
    )
    with context:
        return flow_run_name()


def test_runs_are_named_by_flow_and_recipe_but_what_a_user_named():
    def run(name: str, **given) -> FlowRun:
        return FlowRun(flow_id=uuid4(), name=name, **given)

    assert named(run("brave-lion")) == named(run("News of May")) == "corpus-demo"
    assert named(run("News of May", deployment_id=uuid4(), auto_scheduled=True)) == "corpus-demo"
    for name in ("News of May", "news-2", "news_of_may", "news", "news-of-may"):
        assert named(run(name, deployment_id=uuid4())) == name


@pytest.mark.extended
def test_two_random_words_of_prefect_are_no_name_that_a_user_gave():
    """A run of a deployment that is started from a form, or from the API, without a name."""
    drawn = {generate_slug(2) for _ in range(200)}
    runs = [FlowRun(flow_id=uuid4(), name=name, deployment_id=uuid4()) for name in drawn]
    assert {named(run) for run in runs} == {"corpus-demo"}


def test_a_name_by_options_stays():
    assert flows.pipeline.with_options(flow_run_name="mine").flow_run_name == "mine"

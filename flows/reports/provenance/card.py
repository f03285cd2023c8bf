"""data-card.md: where the documents of a corpus are from, what each step did to them, and what a model read of them."""

from collections.abc import Iterable, Iterator, Mapping

from gristmill.flows.reports.provenance.figures import Answer
from gristmill.flows.reports.provenance.markdown import GAP, gap, numbers, table
from gristmill.flows.reports.run import Run
from gristmill.flows.stages.export import recipe_of_card
from gristmill.tasks.documents.export import markdown_table

CARD = "data-card.md"
_NUMBERS = (
    *("records", "documents", "tokens", "token_documents", "steps", "tokens_read", "dropped", "duplicates", "clusters"),
    *("opt_outs", "domains", "latest", "without_url", "without_date", "without_digest"),
)


def data_card(run: Run, answers: Mapping[str, Answer], about: str) -> str:
    """The card as Markdown. `about`: a sentence that says what it was written from."""
    steps = {step.step for step in run.recipe.steps}
    recipe = recipe_of_card(run.recipe, {"mixture", "takedowns", "evaluation"})
    lines = [
        f"# {run.recipe.name}: data card",
        "",
        about,
        "",
        "Each number is the result of the query next to it. `figures.json` has the same numbers and queries. RECIPE is "
        f"the recipe at the end of this card. {GAP} marks what the home cannot know.",
        "",
        *_section("Numbers", numbers(answers, _NUMBERS)),
        *_section("Sources", _tables(answers, "sources", "files", "periods"), _about_sources()),
        *_section("Sizes", _tables(answers, "sizes", "tokens_by_source")),
        *_section("Languages", _tables(answers, "languages"), _unless("language" in steps, "measures no language")),
        *_section("Filters", _tables(answers, "funnel", "drops", "cuts")),
        *_section("Duplicates", numbers(answers, ("duplicates", "clusters"))),
        *_section(
            "Personal data", _tables(answers, "personal_data"), _unless("pii" in steps, "masks no personal data")
        ),
        *_section(
            "Takedowns and opt-outs", _tables(answers, "opt_outs_by_rule", "opt_outs_by_agent"), opt_out_lines(run)
        ),
        *_section("Evaluation data", _tables(answers, "evaluation"), _about_evaluation(run, steps)),
        *_section("Domains", _tables(answers, "top_domains")),
        *_section("Model", _about_model(run, answers)),
        *_section("Limits", _limits(run)),
        *_section("Recipe", ["~~~yaml", *recipe.splitlines(), "~~~", ""]),
        *_section("Stages", _stages(run)),
    ]
    return "\n".join(lines)


def _section(title: str, body: Iterable[str], remarks: Iterable[str] = ()) -> Iterator[str]:
    yield from (f"## {title}", "")
    for remark in remarks:
        yield from (remark, "")
    yield from body


def _tables(answers: Mapping[str, Answer], *names: str) -> Iterator[str]:
    for name in names:
        if name in answers:
            yield from table(answers[name])


def _unless(is_done: bool, what: str) -> list[str]:
    return [] if is_done else [f"The recipe {what}."]


def _about_sources() -> list[str]:
    return [gap("owner, license and terms of each source, and how it was obtained")]


def opt_out_lines(run: Run) -> Iterator[str]:
    """Which opt-outs the recipe applies, and that it applies no others."""
    steps = {step.base_name for step in run.recipe.steps}
    if run.recipe.takedowns:
        yield f"The recipe applies {len(run.recipe.takedowns)} takedown lists to the curated documents."
    if "rights" in steps:
        yield "The step `rights` applies reservations of rights that pages and hosts declare."
    if not run.recipe.takedowns and "rights" not in steps:
        yield "The recipe has no takedown list and reads no reservations of rights."
    yield gap("opt-outs that the sources' collectors applied before, such as robots.txt during the crawl")


def _about_evaluation(run: Run, steps: set[str]) -> Iterator[str]:
    if "decontamination" not in steps:
        yield "The recipe does not compare the documents with benchmarks."
    if run.data is None:
        yield "No documents are held out, because the home has no training data of this recipe."


def _about_model(run: Run, answers: Mapping[str, Answer]) -> Iterator[str]:
    if "training" not in answers:
        yield from ("The home has no finished training of this recipe.", "")
        return
    for line in trunk_lines(run):
        yield from (line, "")
    yield from numbers(answers, ("steps", "tokens_read"))
    yield from _tables(answers, "training")


def trunk_lines(run: Run) -> Iterator[str]:
    """What a model knew before its first step, where it did not begin with random weights."""
    assert run.trained is not None, "it has a model"
    record = run.trained.model.manifest["record"]
    if trunk := record.get("trunk"):
        shared = "continues in the same data" if trunk["samples"] else "read other data, which are not counted here"
        yield f"Training began with the weights of model-{trunk['key']} after step {trunk['step']:,}, which {shared}."
    elif record["training"]["init_from"]:
        yield f"Training began with given weights. {gap('what these weights were trained on')}"


def _limits(run: Run) -> Iterator[str]:
    sentences = [
        "Dates are those of the records, as their collector wrote them; a document may be older.",
        "Languages, quality and personal data are found by rules and models that err. Names and addresses of persons "
        "that no rule knows stay in the texts.",
        "The legal state of each text is not known. A license that a page declares is not checked.",
        "A stage is attributed to the earliest recorded run that has it. A run whose record was removed may have made "
        "it before.",
        "What sources left out before Gristmill read them is not known.",
        *run.date_lines,
    ]
    yield from (f"- {sentence}" for sentence in sentences)
    yield ""


def _stages(run: Run) -> Iterator[str]:
    yield from ("Each stage and the release of Gristmill that made it; `croissant.json` has their lineage.", "")
    rows = []
    for _, stage in run.built:
        libraries = ", ".join(f"{name} {release}" for name, release in sorted(stage.manifest["libraries"].items()))
        rows.append((stage.label, str(stage.manifest["release"]), libraries))
    yield from (*markdown_table(("stage", "release", "libraries"), rows), "")

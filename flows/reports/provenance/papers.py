"""The papers in Markdown: the data card, and the summary of training content for two laws, as far as it is known.

data-card.md: where the documents of a corpus are from, what each step did to them, and what a model read of them.

training-summary.md, for the European Union: the template of the AI Office for the public summary of training content
that article 53(1)(d) of Regulation (EU) 2024/1689 requires: annex to C(2025) 5235 of 24 July 2025, formally adopted as
C(2025) 8311 of 5 December 2025 (https://digital-strategy.ec.europa.eu/en/library/explanatory-notice-and-template-
public-summary-training-content-general-purpose-ai-models). Sections have the template's numbers, and labels in our
words. For California: AB 2013 (chapter 817, statutes of 2024), Civil Code section 3111(a), items 1 to 12.
"""

import html
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from gristmill.flows.reports.provenance.figures import Answer
from gristmill.flows.reports.run import Run
from gristmill.flows.stages.export import recipe_of_card
from gristmill.storage.printable import one_line
from gristmill.tasks.documents.export import markdown_table

# What no home can know. It is named and never guessed.
GAP = "**To be filled in by the provider**"
CARD = "data-card.md"
_NUMBERS = (
    *("records", "documents", "tokens", "token_documents", "steps", "tokens_read", "dropped", "duplicates", "clusters"),
    *("opt_outs", "domains", "latest", "without_url", "without_date", "without_digest"),
)
SUMMARY = "training-summary.md"
DOMAINS = "top-domains.csv"

# Section 1.3 of the template: ranges of the size of training data that are text, in tokens.
_RANGES = (
    (10**9, "less than 1 billion tokens"),
    (10**13 + 1, "1 billion to 10 trillion tokens"),
)
_LARGEST = "more than 10 trillion tokens"
# Steps that remove content which may be illegal, or is not for everyone.
_HARMFUL = ("adult_content", "bad_words", "toxicity", "url")


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


def size_range(tokens: int) -> str:
    """The template's range of a number of tokens of text."""
    return next((name for end, name in _RANGES if tokens < end), _LARGEST)


def training_summary(run: Run, answers: Mapping[str, Answer], about: str, domains: str) -> str:
    """Both summaries as Markdown. `about`: a sentence that says what they were written from; `domains`: the query of
    top-domains.csv."""
    lines = [
        f"# {run.recipe.name}: summary of training content",
        "",
        about,
        "",
        f"Each number is the result of the query next to it, over the recipe in `data-card.md`. {GAP} marks what the "
        "home cannot know.",
        "",
        *chain.from_iterable(_european(run, answers, domains)),
        *chain.from_iterable(_californian(run, answers)),
    ]
    return "\n".join(lines)


def _european(run: Run, answers: Mapping[str, Answer], domains: str) -> Iterator[list[str]]:
    yield ["## European Union: public summary of training content", ""]
    yield _field("1.1 Provider", gap("name and contact, and those of an authorized representative"))
    yield _field("1.2 Model", f"Recipe: {run.recipe.name}.", *_model(run), gap("name, version, date on the EU market"))
    yield _field("1.3 Kinds, size and traits of the data", "The only modality is text.", *_size(answers))
    yield numbers(answers, ("tokens", "tokens_read", "latest"))
    yield _tables(answers, "languages")
    yield _field("", gap("types of content, and whether the model is trained on new data after the last date"))
    yield _field(
        "2.1 Data sets that are publicly available",
        *_public(run),
        gap("which of the sources below are public data sets, with name and link of each"),
    )
    yield _tables(answers, "sources", "sizes")
    yield _field("2.2 Private data sets of third parties", gap("licenses bought from owners of rights, and other sets"))
    yield _field(
        "2.3 Data crawled and scraped from the web",
        gap("which sources the provider or somebody for them crawled; names, purposes and behavior of the crawlers"),
    )
    yield _tables(answers, "files", "periods")
    yield _field(
        "",
        f"`{DOMAINS}` lists a tenth of the domain names, by the size of their curated texts. Small and medium "
        "enterprises may list fewer: as many of its first rows as the second number says.",
    )
    yield numbers(answers, ("domains", "top_domains_share", "top_domains_sme"))
    yield _tables(answers, "top_domains")
    yield _field("", "The file is the result of:", "", f"```sh\n{command(domains)} --csv\n```")
    yield _field(
        "2.4 Data of users", gap("whether inputs of users of the model or of other services are among the data")
    )
    yield _field(
        "2.5 Synthetic data",
        "Gristmill removes, cuts and masks texts, and writes none with a model.",
        gap("whether sources hold texts that models wrote, and which models"),
    )
    yield _field("2.6 Other sources", gap("sources of other kinds"))
    yield _field("3.1 Reservations of rights for text and data mining", *opt_out_lines(run))
    yield [*numbers(answers, ("opt_outs",)), *_tables(answers, "opt_outs_by_rule", "opt_outs_by_agent")]
    yield _field("", gap("signature of the code of practice, and measures before and during the collection"))
    yield _field("3.2 Removal of illegal content", *_harmful(run), gap("other measures"))
    yield _field("3.3 Other information", "`data-card.md` has what each step did, and the limits of these numbers.")


def _californian(run: Run, answers: Mapping[str, Answer]) -> Iterator[list[str]]:
    yield ["## California: AB 2013, Civil Code section 3111(a)", ""]
    yield _item(1, "Sources or owners of the data sets", f"See section 2.1 above. {gap('owners')}")
    yield _item(2, "How they serve the purpose of the system", gap("purpose"))
    yield [*_item(3, "Number of data points", ""), *numbers(answers, ("documents", "tokens", "tokens_read"))]
    yield _item(4, "Types of data points", "Documents of text, without labels.")
    yield _item(5, "Copyright, trademark, patent, public domain", gap("which texts are protected"))
    yield _item(6, "Purchases and licenses", gap("what was bought or licensed"))
    masked = any(step.step == "pii" for step in run.recipe.steps)
    found = "Kinds that the step `pii` finds were replaced:" if masked else "The recipe masks no personal data."
    yield _item(7, "Personal information", f"Texts may contain personal information. {found}")
    if masked:
        yield _tables(answers, "personal_data")
    yield _item(8, "Aggregate consumer information", gap("whether there is any"))
    yield _item(
        9,
        "Cleaning, processing and modification",
        "Gristmill's reference pages have the purpose of each step and rule.",
    )
    yield _tables(answers, "funnel")
    yield _item(10, "Period of collection", gap("whether the collection continues"))
    yield _tables(answers, "periods")
    yield _item(11, "First use of the data sets in development", gap("dates"))
    yield _item(12, "Generation of synthetic data", "See section 2.5 above.")


def _field(label: str, *lines: str) -> list[str]:
    heading = [f"### {label}", ""] if label else []
    return [*heading, *chain.from_iterable((line, "") for line in lines if line)]


def _item(number: int, label: str, line: str) -> list[str]:
    return _field(f"({number}) {label}", line)


def _tables(answers: Mapping[str, Answer], *names: str) -> list[str]:
    return [line for name in names if name in answers for line in table(answers[name])]


def _model(run: Run) -> Iterator[str]:
    if run.trained is None:
        yield "The home has no finished training of this recipe, so this describes the corpus."
        return
    yield f"Trained model: {run.trained.model.label}, {run.trained.result['parameters']:,} parameters."
    yield from trunk_lines(run)


def _size(answers: Mapping[str, Answer]) -> Iterator[str]:
    if "tokens" not in answers:
        yield f"Size of the text: unknown, because the home has no tokens of this recipe. {gap('range of the size')}"
        return
    yield f"Size of the text: {size_range(answers['tokens'].value)}, without repetition."


def _public(run: Run) -> Iterator[str]:
    for source in run.recipe.sources:
        if source.key in ("snapshot", "index"):
            value = getattr(source, source.key)
            names = [name for name in ((value,) if isinstance(value, str) else value) if name.startswith("CC-MAIN-")]
            yield f"The source {source.name} is of Common Crawl{''.join(f', {name}' for name in names)}."


def _harmful(run: Run) -> Iterator[str]:
    named = [f"`{step.step}`" for step in run.recipe.steps if step.step in _HARMFUL]
    if named:
        yield f"Steps that look for it: {', '.join(named)}. The table under item (9) below has what they removed."
    else:
        yield "The recipe has no step that looks for such content."


def gap(what: str) -> str:
    """A line about something that the home does not know."""
    return f"{GAP}: {what}."


def command(query: str) -> str:
    """The command that computes a figure again. RECIPE is the recipe of the papers."""
    return f'gristmill sql RECIPE "{query}"'


def numbers(answers: Mapping[str, Answer], names: Iterable[str]) -> list[str]:
    """A table of numbers, each with its query; of those that there are."""
    found = [answers[name] for name in names if name in answers]
    rows = [
        (answer.figure.about, cell(answer.value), str(answer.figure.unit), f"`{command(answer.figure.query)}`")
        for answer in found
    ]
    return [*markdown_table(("", "value", "unit", "query"), rows), ""]


def table(answer: Answer) -> Iterator[str]:
    """A figure that is a table, and its query under it; a sentence for one without rows."""
    assert not isinstance(answer.figure.unit, str), "it is a table"
    yield from (answer.figure.about, "")
    if answer.rows:
        units = answer.figure.unit
        heads = [f"{name}, {units[name]}" if units.get(name, name) != name else name for name in answer.columns]
        yield from markdown_table(heads, [[cell(value) for value in row] for row in answer.rows])
    else:
        yield "There are none."
    yield from ("", "<details><summary>Query</summary>", "", "```sh", command(answer.figure.query), "```", "")
    yield from ("</details>", "")


def cell(value: Any) -> str:
    """A value in a table. Texts come from crawls, so they are escaped."""
    if value is None:
        return "unknown"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return html.escape(one_line(f"{value}"), quote=False)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"

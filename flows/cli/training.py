"""The commands `train ...`: models that steps score documents by, made once and named in recipes."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer
import wrapt
import yaml

from gristmill.flows.cli.terminal import print_texts
from gristmill.flows.machine.settings import MachineSettings
from gristmill.storage import files
from gristmill.tasks.engine.extras import require
from gristmill.tasks.models import ngram_models
from gristmill.tasks.models.classifiers import description
from gristmill.tasks.models.embedders import Embedder
from gristmill.tasks.models.quality import Classifier

if TYPE_CHECKING:
    from gristmill.flows.experiments.models import classifier as classifiers
    from gristmill.flows.experiments.models import recipe_data
    from gristmill.flows.run import tracking
else:
    classifiers = wrapt.lazy_import("gristmill.flows.experiments.models.classifier")
    recipe_data = wrapt.lazy_import("gristmill.flows.experiments.models.recipe_data")
    tracking = wrapt.lazy_import("gristmill.flows.run.tracking")


Patterns = list[str] | None
Option = typer.Option


def lm(
    language: Annotated[str, typer.Argument(help="its code, as the step `language` names it: en")],
    out: Annotated[str, Option("--out", metavar="FOLDER", help="where LANGUAGE.arpa.bin and LANGUAGE.sp.model go")],
    text: Annotated[Patterns, Option("--text", metavar="GLOB", help="plain text files; may be repeated")] = None,
    jsonl: Annotated[Patterns, Option("--jsonl", metavar="GLOB", help="files of JSON, one object a line")] = None,
    parquet: Annotated[Patterns, Option("--parquet", metavar="GLOB", help="Parquet files")] = None,
    column: Annotated[str, Option("--column", help="column, or key, of the texts")] = "text",
    recipe: Annotated[str | None, Option("--recipe", help="whose finished corpus has the texts")] = None,
    source: Annotated[Patterns, Option("--source", help="of the recipe; may be repeated")] = None,
    vocabulary: Annotated[int, Option("--vocabulary", min=16, help="pieces at most")] = 65_536,
    order: Annotated[int, Option("--order", min=2, max=6, help="longest n-gram, in pieces")] = 5,
    prune: Annotated[
        str, Option("--prune", help="drop n-grams with at most so many occurrences: by order, the last for all higher")
    ] = "0,0,1",
    bits: Annotated[int, Option("--bits", min=2, max=25, help="of a quantised probability, and of a back-off")] = 8,
) -> None:
    """A SentencePiece model and a KenLM model, as CCNet has them."""
    try:
        pruned = tuple(int(each) for each in prune.split(",") if each)
    except ValueError:
        raise ValueError(f"--prune is {prune}; give numbers with commas between, as 0,0,1") from None
    chosen = ngram_models.Training(vocabulary=vocabulary, order=order, prune=pruned, bits=bits)
    passed_over: Counter[str] = Counter()
    patterns = {"text": text, "jsonl": jsonl, "parquet": parquet}
    texts = _texts(language, patterns, column, recipe, source, passed_over)
    counts = ngram_models.train(texts, out, language, chosen)
    model, _ = ngram_models.names(out, language)
    if passed_over:
        reasons = ", ".join(f"{count:,} {rule}" for rule, count in sorted(passed_over.items()))
        print_texts([f"passed over: {reasons}"])
    shown = ", ".join(f"{value:,} {name}" for name, value in counts.items())
    print_texts([f"{shown}\nmodels: {{{language}: {model}}}"])


def _texts(
    language: str,
    options: dict[str, Patterns],
    column: str,
    recipe: str | None,
    sources: Patterns,
    passed_over: Counter[str],
) -> Iterable[str]:

    kinds = [kind for kind, patterns in options.items() if patterns]
    if len(kinds) + (recipe is not None) != 1:
        raise ValueError("give one of --text, --jsonl, --parquet and --recipe, which have the texts")
    if recipe is None:
        return recipe_data.texts_of_files(kinds[0], options[kinds[0]] or (), column, passed_over)
    if not sources:
        raise ValueError("--recipe needs --source: the source whose documents are good text")
    return recipe_data.texts_of_recipe(recipe, sources, language, MachineSettings())


def classifier(
    out: Annotated[str, typer.Argument(metavar="FILE", help="the model; its description is FILE.json")],
    jsonl: Annotated[Patterns, Option("--jsonl", metavar="GLOB", help="labelled texts, one JSON object a line")] = None,
    parquet: Annotated[Patterns, Option("--parquet", metavar="GLOB", help="labelled texts as Parquet files")] = None,
    good: Annotated[Patterns, Option("--good", metavar="LABEL", help="of good examples; may be repeated")] = None,
    topics: Annotated[bool, Option("--topics", help="each label by itself, for the step `topic`")] = False,
    text_column: Annotated[str, Option("--text-column", help="column, or key, of the texts")] = "text",
    label_column: Annotated[str, Option("--label-column", help="column, or key, of the labels")] = "label",
    group_column: Annotated[
        str | None,
        Option("--group-column", help="column, or key, of what texts come from; default: page, document or url"),
    ] = None,
    recipe: Annotated[str | None, Option("--recipe", help="finished; its step `quality` says what is learned")] = None,
    setting: Annotated[
        Patterns, Option("--set", metavar="NAME=VALUE", help="of the step `quality`, as epochs=10; may be repeated")
    ] = None,
) -> None:
    """On good examples, for the step `quality`, from labelled files or from the sources of a finished recipe; or on
    several labels. Beside the model go FILE.json, what it is and how good, and FILE.svg."""
    require("train", "training a classifier")  # which is measured, and logged to MLflow
    kinds = {kind: globs for kind, globs in (("jsonl", jsonl), ("parquet", parquet)) if globs}
    if len(kinds) + (recipe is not None) != 1:
        raise ValueError("give one of --jsonl, --parquet and --recipe, which have the examples")
    if recipe is not None:
        if setting or good or topics or group_column:
            raise ValueError(
                "--set, --good, --topics and --group-column are for labelled files; the step `quality` of the recipe "
                "has its own"
            )
        measures = classifiers.from_recipe(out, recipe, MachineSettings())
    else:
        if topics and good:
            raise ValueError("--topics takes each label by itself, and --good makes two of them; give one")
        chosen = Classifier.model_validate(_values(setting))
        [(kind, patterns)] = kinds.items()
        columns = text_column, label_column, group_column
        measures = classifiers.from_labels(out, kind, patterns, [] if topics else good or ["1"], chosen, *columns)
    settings_of = files.read_json(description(out))["settings"]
    labels = {"recipe": recipe} if recipe is not None else {"labels": jsonl or parquet, "good": good}
    run = tracking.log_model_file(
        MachineSettings(), "classifiers", out, "classifier", {**settings_of, **labels}, measures
    )
    measures.pop("confusion", None)
    by_label, folds_by = measures.pop("by_label", {}), measures.pop("folds_by", "")
    shown = ", ".join(
        f"{name} {value:.3f}" if isinstance(value, float) else f"{value:,} {name}" for name, value in measures.items()
    )
    if folds_by:
        shown += f"\nmeasured on halves of the examples by `{folds_by}`: texts with the same are in one half"
    for name, each in by_label.items():
        figures = ", ".join(f"{measure} {each[measure]:.3f}" for measure in ("f1", "precision", "recall"))
        shown += f"\n{name}: {each['examples']:,} examples, {figures}"
    shown += f"\nlogged to the MLflow run {run}\nmodel: {out}"
    print_texts([shown])


def head(
    out: Annotated[str, typer.Argument(metavar="FILE", help="the head, as safetensors")],
    jsonl: Annotated[Patterns, Option("--jsonl", metavar="GLOB", help="labels, one JSON object a line")] = None,
    parquet: Annotated[Patterns, Option("--parquet", metavar="GLOB", help="labels as Parquet files")] = None,
    model: Annotated[str | None, Option("--model", metavar="FOLDER", help="a sentence embedder, for texts")] = None,
    recipe: Annotated[
        str | None, Option("--recipe", help="whose step `embedding` is finished, for ids of its documents")
    ] = None,
    good: Annotated[
        Patterns,
        Option("--good", metavar="LABEL", help="of good examples, against all others; none: labels are numbers"),
    ] = None,
    text_column: Annotated[str, Option("--text-column", help="column, or key, of the texts")] = "text",
    id_column: Annotated[str, Option("--id-column", help="column, or key, of the documents' ids")] = "id",
    label_column: Annotated[str, Option("--label-column", help="column, or key, of the labels")] = "label",
    penalty: Annotated[
        float | None, Option("--penalty", min=1e-12, help="of squared weights; none: the best of eight")
    ] = None,
    setting: Annotated[
        Patterns, Option("--set", metavar="NAME=VALUE", help="of the step `embedding`, as pooling=cls; may be repeated")
    ] = None,
) -> None:
    """On labelled texts, or on labels of documents that a recipe has embedded. All figures are by cross-validation in
    five folds; they are in the file, too."""
    kinds = {kind: values for kind, values in (("jsonl", jsonl), ("parquet", parquet)) if values}
    if len(kinds) != 1 or (model is None) == (recipe is None):
        raise ValueError("give --model or --recipe, which have the vectors, and --jsonl or --parquet with the labels")
    [labels] = kinds.items()
    if model is not None:
        chosen = Embedder.model_validate(_values(setting))
        measures = classifiers.head_from_texts(
            out, model, labels, (text_column, label_column), good or (), chosen, penalty
        )
    elif setting:
        raise ValueError("--set is for --model; the step `embedding` of the recipe has its own")
    else:
        assert recipe is not None
        measures = classifiers.head_from_recipe(
            out, recipe, labels, (id_column, label_column), good or (), penalty, MachineSettings()
        )
    values = {"labels": jsonl or parquet, "good": good, "model": model, "recipe": recipe, "kind": measures["kind"]}
    run = tracking.log_model_file(MachineSettings(), "heads", out, "head", values, measures)
    flat = {name: value for name, value in measures.items() if not isinstance(value, list | dict)}
    lines = [
        ", ".join(
            f"{name} {value:.3f}" if isinstance(value, float) else f"{name} {value}" for name, value in flat.items()
        )
    ]
    if "f1_from" in measures:
        lines.append("F1 from " + ", ".join(f"{name}: {value:.3f}" for name, value in measures["f1_from"].items()))
    if "confusion" in measures:
        lines += [" ".join(f"{cell:>8}" for cell in row) for row in classifiers.confusion_rows(measures)]
    lines += [f"logged to the MLflow run {run}", f"heads: {{NAME: {out}}}"]
    print_texts(lines)


def _values(settings: Patterns) -> dict[str, object]:
    """Settings that are given as NAME=VALUE, the values in YAML."""
    return {name: yaml.safe_load(value) for name, _, value in (each.partition("=") for each in settings or ())}

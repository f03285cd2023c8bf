"""The commands `train lm`, `classifier` and `head`: models for steps, which recipes name."""

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
    language: Annotated[str, typer.Argument(metavar="LANGUAGE", help="code of the language, such as en")],
    out: Annotated[str, Option("--out", metavar="FOLDER", help="folder for LANGUAGE.arpa.bin and LANGUAGE.sp.model")],
    text: Annotated[Patterns, Option("--text", metavar="GLOB", help="text files; repeatable")] = None,
    jsonl: Annotated[Patterns, Option("--jsonl", metavar="GLOB", help="JSON Lines files; repeatable")] = None,
    parquet: Annotated[Patterns, Option("--parquet", metavar="GLOB", help="Parquet files; repeatable")] = None,
    column: Annotated[str, Option("--column", help="column of the texts")] = "text",
    recipe: Annotated[str | None, Option("--recipe", metavar="RECIPE", help="finished recipe with the texts")] = None,
    source: Annotated[
        Patterns, Option("--source", metavar="NAME", help="with --recipe: source of good texts; repeatable")
    ] = None,
    vocabulary: Annotated[int, Option("--vocabulary", min=16, help="maximum number of pieces")] = 65_536,
    order: Annotated[int, Option("--order", min=2, max=6, help="length of the longest n-gram, in pieces")] = 5,
    prune: Annotated[
        str,
        Option("--prune", metavar="N,N,...", help="occurrences up to which n-grams are dropped, by order"),
    ] = "0,0,1",
    bits: Annotated[int, Option("--bits", min=2, max=25, help="bits of a quantized probability or back-off")] = 8,
) -> None:
    """Writes a SentencePiece and a KenLM model, like CCNet's. Texts are from files or from a finished recipe.

    Guide: docs/explanation/perplexity.md

    Examples:
        gristmill train lm en --out models --jsonl "wikipedia-en/*.jsonl.gz"
        gristmill train lm en --out models --recipe recipe.yaml --source wikipedia
    """
    try:
        pruned = tuple(int(each) for each in prune.split(",") if each)
    except ValueError:
        raise ValueError(f"--prune is not a list of numbers: {prune}. Write, for example, 0,0,1") from None
    chosen = ngram_models.Training(vocabulary=vocabulary, order=order, prune=pruned, bits=bits)
    skipped: Counter[str] = Counter()
    patterns = {"text": text, "jsonl": jsonl, "parquet": parquet}
    texts = _texts(language, patterns, column, recipe, source, skipped)
    counts = ngram_models.train(texts, out, language, chosen)
    model, _ = ngram_models.names(out, language)
    if skipped:
        reasons = ", ".join(f"{count:,} {rule}" for rule, count in sorted(skipped.items()))
        print_texts([f"skipped: {reasons}"])
    totals = ", ".join(f"{value:,} {name}" for name, value in counts.items())
    print_texts([f"{totals}\nmodels: {{{language}: {model}}}"])


def _texts(
    language: str,
    options: dict[str, Patterns],
    column: str,
    recipe: str | None,
    sources: Patterns,
    skipped: Counter[str],
) -> Iterable[str]:

    kinds = [kind for kind, patterns in options.items() if patterns]
    if len(kinds) + (recipe is not None) != 1:
        raise ValueError("the texts need one of --text, --jsonl, --parquet and --recipe. Choose one of them")
    if recipe is None:
        return recipe_data.texts_of_files(kinds[0], options[kinds[0]] or (), column, skipped)
    if not sources:
        raise ValueError("--recipe needs --source. Name the source of good texts")
    return recipe_data.texts_of_recipe(recipe, sources, language, MachineSettings())


def classifier(
    out: Annotated[str, typer.Argument(metavar="FILE", help="file of the model")],
    jsonl: Annotated[
        Patterns, Option("--jsonl", metavar="GLOB", help="JSON Lines files with labeled texts; repeatable")
    ] = None,
    parquet: Annotated[
        Patterns, Option("--parquet", metavar="GLOB", help="Parquet files with labeled texts; repeatable")
    ] = None,
    good: Annotated[Patterns, Option("--good", metavar="LABEL", help="label of good examples; repeatable")] = None,
    topics: Annotated[bool, Option("--topics", help="one class per label, for the step `topic`")] = False,
    text_column: Annotated[str, Option("--text-column", help="column of the texts")] = "text",
    label_column: Annotated[str, Option("--label-column", help="column of the labels")] = "label",
    group_column: Annotated[
        str | None,
        Option("--group-column", metavar="COLUMN", help="column of the origin; default: page, document or url"),
    ] = None,
    recipe: Annotated[
        str | None, Option("--recipe", metavar="RECIPE", help="finished recipe with the step `quality`")
    ] = None,
    setting: Annotated[
        Patterns,
        Option("--set", metavar="NAME=VALUE", help="setting of the step `quality`, such as epochs=10; repeatable"),
    ] = None,
) -> None:
    """Trains on labeled files, or on the sources of a finished recipe. Also writes FILE.json with settings and
    measures, and FILE.svg.

    Guide: docs/guides/quality-classifier.md

    Examples:
        gristmill train classifier quality.bin --jsonl labels.jsonl
        gristmill train classifier quality.bin --recipe recipe.yaml
    """
    require("train", "training a classifier")  # which is measured, and logged to MLflow
    kinds = {kind: globs for kind, globs in (("jsonl", jsonl), ("parquet", parquet)) if globs}
    if len(kinds) + (recipe is not None) != 1:
        raise ValueError("the examples need one of --jsonl, --parquet and --recipe. Choose one of them")
    if recipe is not None:
        if setting or good or topics or group_column:
            raise ValueError(
                "--set, --good, --topics and --group-column exclude --recipe, whose step `quality` has these settings. "
                "Remove them, or use labeled files"
            )
        measures = classifiers.from_recipe(out, recipe, MachineSettings())
    else:
        if topics and good:
            raise ValueError("--topics and --good exclude each other. Remove one of them")
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
    no_interval = measures.pop("no_interval", "")
    lines = [
        ", ".join(
            f"{name} {value:.3f}" if isinstance(value, float) else f"{value:,} {name}"
            for name, value in measures.items()
        )
    ]
    if folds_by:
        lines.append(f"measured in ten parts by models of the other nine; texts of one {folds_by} are together")
    if no_interval:
        lines.append(f"warning: roc_auc has no interval, because {no_interval}")
    if measures.get("above_length", 1.0) <= 0:
        lines.append(
            "warning: roc_auc is not shown to be above length_roc_auc, that of the length of texts. Add examples, or "
            "label texts that differ in more than length"
        )
    for name, each in by_label.items():
        figures = ", ".join(f"{measure} {each[measure]:.3f}" for measure in ("f1", "precision", "recall"))
        lines.append(f"{name}: {each['examples']:,} examples, {figures}")
    print_texts([*lines, f"MLflow run: {run}", f"model: {out}"])


def head(
    out: Annotated[str, typer.Argument(metavar="FILE", help="file of the head, in safetensors format")],
    jsonl: Annotated[
        Patterns, Option("--jsonl", metavar="GLOB", help="JSON Lines files with labels; repeatable")
    ] = None,
    parquet: Annotated[
        Patterns, Option("--parquet", metavar="GLOB", help="Parquet files with labels; repeatable")
    ] = None,
    model: Annotated[
        str | None, Option("--model", metavar="FOLDER", help="sentence embedder, for labeled texts")
    ] = None,
    recipe: Annotated[
        str | None,
        Option("--recipe", metavar="RECIPE", help="finished recipe with the step `embedding`, for labeled ids"),
    ] = None,
    good: Annotated[
        Patterns,
        Option("--good", metavar="LABEL", help="label of good examples; default: labels are numbers; repeatable"),
    ] = None,
    text_column: Annotated[str, Option("--text-column", help="column of the texts")] = "text",
    id_column: Annotated[str, Option("--id-column", help="column of the documents' ids")] = "id",
    label_column: Annotated[str, Option("--label-column", help="column of the labels")] = "label",
    penalty: Annotated[
        float | None, Option("--penalty", min=1e-12, help="L2 penalty; default: the best of eight")
    ] = None,
    setting: Annotated[
        Patterns,
        Option("--set", metavar="NAME=VALUE", help="setting of the step `embedding`, such as pooling=cls; repeatable"),
    ] = None,
) -> None:
    """Trains on labeled texts, or on labels of documents that a recipe has embedded. Measures are from five-fold
    cross-validation.

    Guide: docs/explanation/embeddings.md

    Examples:
        gristmill train head edu.safetensors --model model --jsonl labels.jsonl
        gristmill train head edu.safetensors --recipe recipe.yaml --jsonl ids.jsonl
    """
    kinds = {kind: values for kind, values in (("jsonl", jsonl), ("parquet", parquet)) if values}
    if len(kinds) != 1 or (model is None) == (recipe is None):
        raise ValueError("head needs vectors and labels. Give --model or --recipe, and --jsonl or --parquet")
    [labels] = kinds.items()
    if model is not None:
        chosen = Embedder.model_validate(_values(setting))
        measures = classifiers.head_from_texts(
            out, model, labels, (text_column, label_column), good or (), chosen, penalty
        )
    elif setting:
        raise ValueError("--set excludes --recipe, whose step `embedding` has these settings. Remove --set")
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
    lines += [f"MLflow run: {run}", f"heads: {{NAME: {out}}}"]
    print_texts(lines)


def _values(settings: Patterns) -> dict[str, object]:
    """Parse settings of the form NAME=VALUE, with values in YAML."""
    return {name: yaml.safe_load(value) for name, _, value in (each.partition("=") for each in settings or ())}

"""Makes the runs of an experiment comparable in MLflow: names and parameters with the differences between their
recipes, and a tag that tells which runs were evaluated on the same documents.

The base is the shipped recipe with the experiment's name, or the recipe of the experiment's first run. The name of a
run has the differences from the base. Runs with the same value of the tag COMPARABLE were evaluated on the same
documents, and their metrics have the same names.
"""

import getpass
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import mlflow
import orjson
import yaml
from mlflow.entities import Run, ViewType

from gristmill.flows.recipe.recipe import Recipe, load, shipped_names
from gristmill.flows.run.tracking import flat
from gristmill.flows.stages.heldout import Data
from gristmill.storage.printable import redact_url, redact_urls
from gristmill.training.config import NEUTRAL, TrainingConfig
from gristmill.training.model_config import ModelConfig
from gristmill.training.run.tracking import SHORT, TrackedNames, as_read

CAUSAL = TrainingConfig()
COMPARABLE = "comparable with"
RECIPE = "recipe.yaml"
# What is of interest in each run, whether it differs or not: what is read, in which steps, and the size of the run.
PARAMS = (
    *("seed", "limit", "tokenizer.vocab_size", "model.dim", "model.layers", "model.heads", "model.seq_len"),
    *("training.steps", "training.batch", "training.learning_rate", "training.optimizer", "training.seed"),
    *("training.objective", "model.block"),
)
_NO_MATTER = {"name", *(f"training.{name}" for name in NEUTRAL - {"init_from", "eval_tokens"})}
_NAMED = 4  # differences in the name of a run
_LONGEST = 40  # characters of a value in a name
_PARAM = 6000  # characters of a parameter that MLflow takes
_LOOKED_AT = 1000  # the newest runs of an experiment
_VIEW = "gristmill"  # the key of the shared view: MLflow keeps one for each key, so this one is replaced
_VIEW_TAG = 5000  # characters of an experiment's tag that MLflow takes
_WIDTH = 120  # pixels of a column at the least
_VARIED = 8  # columns of parameters that differ between runs
# The metrics of the shared view, in this order. Names of evaluations hold digests.
_COLUMNS = (
    re.compile(r"heldout(-\w+)?/bits_per_byte"),
    re.compile(r"evaluation(-\w+)?/.+/bits_per_byte"),
    re.compile(r"bits_per_byte"),
    re.compile(r"train/tokens"),
    re.compile(r"resources/(training_hours|corpus_core_hours)"),
)
_ABOUT = "**Comparable runs**"


def tracked_names(data: Data, training: TrainingConfig = CAUSAL) -> TrackedNames:
    """The names in MLflow of the metrics of a model that is trained on this data."""
    sets = {name: as_read(facts["digest"], training) for name, facts in data.evaluated.items()}
    return TrackedNames(sets, data.tokenizer.file(data.tokenizer.result["tokenizer"]["file"]).digest)


def comparable(data: Data, training: TrainingConfig = CAUSAL) -> str:
    """The value of the tag COMPARABLE: the common prefix of the metrics of all held-out documents."""
    return f"heldout-{tracked_names(data, training).digest('heldout')[:SHORT]}"


def base_of(recipe: Recipe, first: dict[str, Any] | None) -> dict[str, Any]:
    """The values of the base, by key. `first`: the recipe of the experiment's first run, if there is one."""
    if recipe.name in shipped_names():
        return load(recipe.name).model_dump(mode="json")
    return recipe.model_dump(mode="json") if first is None else first


def recipe_of(client: mlflow.MlflowClient, run: Run, folder: Path) -> dict[str, Any] | None:
    """The recipe of a run, with today's defaults; None if the run has no readable recipe."""
    if RECIPE not in {artifact.path for artifact in client.list_artifacts(run.info.run_id)}:
        return None
    values = yaml.safe_load(Path(client.download_artifacts(run.info.run_id, RECIPE, str(folder))).read_text("utf-8"))
    try:
        return Recipe.model_validate(values).model_dump(mode="json")
    except ValueError:  # of an older release
        return values if isinstance(values, dict) else None


def run_name(recipe: Recipe, base: Mapping[str, Any]) -> str:
    """`web · minhash.threshold .7 · training.seed 2`: the recipe's name and its differences from the base."""
    differences = list(_differences(base, recipe.model_dump(mode="json")))
    more = [f"{len(differences) - _NAMED} more"] if len(differences) > _NAMED else []
    return " · ".join([recipe.name, *differences[:_NAMED], *more])


def _differences(base: Mapping[str, Any], recipe: Mapping[str, Any]) -> Iterator[str]:
    """The differences in the words of `--set` and `--without`, in the recipe's order."""
    missing: list[str] = []
    for key, name, what in (("sources", "name", "source "), ("steps", "step", "")):
        before, now = ([entry[name] for entry in values.get(key) or []] for values in (base, recipe))
        yield from (f"with {what}{one}" for one in now if one not in before)
        yield from (f"without {what}{one}" for one in before if one not in now)
        missing += [f"{key}.{one}." for one in {*before, *now} if one not in before or one not in now]
        if [one for one in before if one in now] != [one for one in now if one in before]:
            yield f"{key} in a different order"
    for key in _differing(base, recipe):
        if not key.startswith(tuple(missing)):
            yield f"{key.removeprefix('steps.')} {_shown(flat(dict(recipe)).get(key, _values(recipe).get(key)))}"


def _differing(base: Mapping[str, Any], recipe: Mapping[str, Any]) -> list[str]:
    """The keys whose values differ, without keys that do not affect the model."""
    before, now = flat(dict(base)), flat(dict(recipe))
    return [key for key in {**now, **before} if not _no_matter(key) and before.get(key) != now.get(key)]


def _no_matter(key: str) -> bool:
    return key in _NO_MATTER or key.rpartition(".")[0] in _NO_MATTER


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:g}"
    if isinstance(value, list):
        value = ", ".join(map(_shown, value))
    text = "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    text = redact_urls(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _values(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a recipe by key. Unset settings of the model and of training have the value that is used."""
    values = flat(dict(recipe))
    for part, settings in (("model", ModelConfig), ("training", TrainingConfig)):
        with suppress(ValueError):  # of an older release
            filled = settings.model_validate(recipe.get(part) or {}).filled
            values |= {f"{part}.{name}": value for name, value in filled.items()}
    return values


def params(recipe: Recipe, base: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, str]:
    """Parameters of a run: PARAMS, sources, steps, differences from the base, and those that the first run has."""
    recipe_values = recipe.model_dump(mode="json")
    values = _values(recipe_values)
    wanted = dict.fromkeys([*PARAMS, *_differing(base, recipe_values), *others])
    listed = {
        "sources": ", ".join(source.name for source in recipe.sources),
        "steps": ", ".join(step.step for step in recipe.steps),
    }
    return listed | {name: str(values[name])[:_PARAM] for name in wanted if name in values}


def missing_params(first: Run, recipe: dict[str, Any], current: Mapping[str, str]) -> dict[str, str]:
    """The parameters that another run has and the experiment's first run lacks, so that both show the difference."""
    values = _values(recipe)
    lacking = (name for name in current if name in values and name not in first.data.params)
    return {name: str(values[name])[:_PARAM] for name in lacking}


def provenance() -> dict[str, str]:
    """Tags with which MLflow shows the user, the command and the commit of a run."""
    command = shlex.join(
        [os.path.basename(sys.argv[0]), *(redact_url(redact_urls(argument)) for argument in sys.argv[1:])]
    )
    tags = {"mlflow.source.type": "LOCAL", "mlflow.source.name": command[: _PARAM // 2]}
    try:
        tags["mlflow.user"] = getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        tags["mlflow.user"] = str(os.getuid())
    if commit := _git("rev-parse", "HEAD"):
        tags["mlflow.source.git.commit"] = commit
        tags["uncommitted changes"] = "yes" if _git("status", "--porcelain", "--untracked-files=no") else "no"
    return tags


def _git(*arguments: str) -> str:
    """The output of a git command in the working directory; empty without a repository or without git."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def evaluated_on(data: Data, others: list[Run], training: TrainingConfig) -> list[str]:
    """Markdown: what a model was evaluated on, and which runs of the experiment were evaluated on something else."""
    names, own_tag, lines, shared = tracked_names(data, training), comparable(data, training), [], []
    for kind, what in (
        ("heldout", "held-out documents of the sources"),
        ("evaluation", "texts of the recipe's `evaluation`"),
    ):
        own = {name.partition("/")[2]: facts for name, facts in data.evaluated.items() if name.startswith(f"{kind}/")}
        if not own:
            continue
        sizes = ", ".join(f"{name} {facts['documents']:,}" for name, facts in own.items())
        begins = [f"`{names(f'{kind}/{name}/bits_per_byte')}`" for name in own]
        if kind == "heldout":
            begins = [f"`{names('heldout/bits_per_byte')}`"]
        else:
            shared = begins
        size = sum(facts["bytes"] for facts in own.values())
        lines.append(f"Evaluated on {what} ({sizes}; {size:,} bytes): {', '.join(begins)}.")
    lines.append(
        "Runs with a metric of the same name were evaluated on the same bytes, and lower is better. Only "
        "these metrics show which recipe is better: `survivors-...` are the held-out documents that this "
        "recipe keeps, and losses per token depend on the run's own tokenizer and text. One run per recipe "
        "is weak evidence: `gristmill decide ablate` measures how certain a difference is."
    )
    apart = [run for run in others if run.data.tags.get(COMPARABLE, own_tag) != own_tag]
    if apart:
        named = ", ".join(f"`{run.info.run_name}` ({run.data.tags[COMPARABLE]})" for run in apart[:_NAMED])
        more = f" and {len(apart) - _NAMED} more" if len(apart) > _NAMED else ""
        # first: of a long description MLflow shows the beginning
        lines.insert(
            0,
            f"**Not comparable** with {named}{more}: their held-out documents differ, because the sources, "
            "files, `limit`, extraction, normalization, `mixture.heldout_fraction`, `training.eval_tokens` "
            "or takedowns differ."
            + (f" Compare with these only by {', '.join(shared)}, where they have it." if shared else ""),
        )
    return lines


def compared_runs(client: mlflow.MlflowClient, experiment: str) -> list[Run]:
    """The model runs of an experiment that record what they were evaluated on, newest first."""
    wanted = f"tags.`{COMPARABLE}` LIKE '%'"
    return list(client.search_runs([experiment], wanted, ViewType.ACTIVE_ONLY, max_results=_LOOKED_AT))


def describe_experiment(client: mlflow.MlflowClient, experiment: str) -> None:
    """Write into an experiment's description which of its runs can be compared, unless a person has written one."""
    note = client.get_experiment(experiment).tags.get("mlflow.note.content", "")
    if note and not note.startswith(_ABOUT):
        return
    groups: dict[str, list[str]] = {}
    for run in compared_runs(client, experiment):
        groups.setdefault(run.data.tags[COMPARABLE], []).append(run.info.run_name or run.info.run_id)
    lines = [f"{_ABOUT} Runs were evaluated on the same documents if their metrics have the same name."]
    if len(groups) > 1:
        lines[0] += f" **There are {len(groups)} groups. Compare only runs of the same group.**"
    for name, runs in sorted(groups.items()):
        named = ", ".join(f"`{run}`" for run in sorted(set(runs))[: 2 * _NAMED])
        more = ", ..." if len(set(runs)) > 2 * _NAMED else ""
        lines.append(f"- `{name}/bits_per_byte`, {len(runs)} run{'s' * (len(runs) > 1)}: {named}{more}")
    client.set_experiment_tag(experiment, "mlflow.note.content", "\n".join([lines[0], "", *lines[1:]]))


def shared_view(client: mlflow.MlflowClient, experiment: str) -> str:
    """Store a table of an experiment's runs, with the columns that compare recipes.

    Returns its path below MLflow's address, `/#/experiments/1/runs?viewStateShareKey=...`, which opens the pages for
    model training: a browser that is new to them shows those for language model applications, whatever the experiment.

    MLflow's pages keep the columns that a person chooses in the browser. What they call a shared view is JSON in a tag
    of the experiment, and a link with its key opens it. It is not a public interface: this is what the pages of MLflow
    3.17 read.
    """
    runs = list(client.search_runs([experiment], "", ViewType.ACTIVE_ONLY, max_results=_LOOKED_AT))
    columns = _columns(runs)
    while len(value := _view(columns)) > _VIEW_TAG:
        columns.pop()
    client.set_experiment_tag(experiment, f"mlflow.sharedViewState.{_VIEW}", value)
    return f"/#/experiments/{experiment}/runs?viewStateShareKey={_VIEW}&workflowType=machine_learning"


def newest_view(client: mlflow.MlflowClient) -> str:
    """The path of `shared_view` for the experiment of the newest run; that of all experiments if there is no run."""
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    newest = client.search_runs(experiments, max_results=1, order_by=["attributes.start_time DESC"])
    if not newest:
        return "/#/experiments?workflowType=machine_learning"
    return shared_view(client, newest[0].info.experiment_id)


def _view(columns: list[str]) -> str:
    widths = {column: max(_WIDTH, 7 * len(column)) for column in columns}  # pixels
    return orjson.dumps({"selectedColumns": columns, "columnOrder": columns, "columnWidths": widths}).decode()


def _columns(runs: list[Run]) -> list[str]:
    """The columns in MLflow's terms: the metrics of interest, documents kept, and parameters that differ."""
    metrics = dict.fromkeys(name for run in runs for name in run.data.metrics)
    shown = [name for pattern in _COLUMNS for name in sorted(metrics) if pattern.fullmatch(name)]
    shown += sorted({kept for run in runs if (kept := _kept(run))})
    params = dict.fromkeys(name for run in runs for name in run.data.params)
    varied = [name for name in params if len({run.data.params.get(name) for run in runs}) > 1]
    named = [name for name in ("recipe", "arm", "parameters", "tokens") if name in varied]
    chosen = list(dict.fromkeys([*named, *varied]))[:_VARIED]
    return [f"metrics.`{name}`" for name in shown] + [f"params.`{name}`" for name in chosen]


def _kept(run: Run) -> str:
    """The metric with the documents that the last step of a run's recipe kept; empty if the run has none."""
    names = [f"steps/{step}/documents" for step in run.data.params.get("steps", "").split(", ")]
    return next((name for name in reversed(names) if name in run.data.metrics), "")

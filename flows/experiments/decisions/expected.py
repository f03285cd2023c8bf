"""What is known of a decision's data before it is made: by what the home has, else by the sizes of the sources' files.

So that `--plan` prices neither more tokens than a corpus has nor more documents than judge.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from gristmill.flows.experiments.decisions.arm_data import ComparisonData, proxy_data
from gristmill.flows.experiments.decisions.plan import Plan
from gristmill.flows.experiments.decisions.runs import evaluation_set
from gristmill.flows.experiments.options import DecisionOptions
from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.evaluation.judge import CLEAN, clean_recipe
from gristmill.flows.stages.mixture import MixturePlan
from gristmill.flows.stats.runs import EvaluationSet
from gristmill.storage import files
from gristmill.tasks.engine.make import NotFinishedError, StageResult, find
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.reading.formats.source import Files

EVALUATION = "evaluation_documents"
COMPRESSED = (".gz", ".zst", ".bz2", ".xz", ".parquet")
# Compressed text has about one token a byte: gzip takes a third of English, and a token is three bytes or more.
TOKENS_A_BYTE, TOKENS_A_COMPRESSED_BYTE = 1, 2


def expected(settings: MachineSettings, plan: Plan, options: DecisionOptions, tokenizer: Path | None) -> Plan:
    """The plan with the tokens of a run and the documents that judge as the home knows them. Without finished corpora
    the tokens are at most what the files of the recipe with least text can have, where their sizes are known.

    Makes nothing. Raises ValueError for finished corpora that cannot be compared so.
    """
    evaluation: list[StageResult] = []
    budget: list[int] = []

    def build(spec: StageSpec) -> StageResult:
        stage = find(settings.home, spec)
        if stage is None or stage.is_collected:
            if isinstance(spec.record, MixturePlan):  # which is made of finished corpora, for this budget
                budget.append(spec.record.budget)
            raise NotFinishedError(spec.name)
        if spec.name == EVALUATION:
            evaluation.append(stage)
        return stage

    data = None
    plan = replace(plan, evaluation=_of_clean(settings, plan, options))
    if not any(name.startswith(f"{EVALUATION}-") for name in files.names(files.join(settings.home, "stages"))):
        return plan if plan.fixed_tokens else _by_files(settings, plan)  # sources are not read for their digests
    try:
        data = proxy_data(
            RunContext(settings, build),
            plan.proxy,
            plan.arms.recipes,
            plan.tokens,
            step_tokens=2 * plan.proxy.step_tokens,
            clean=options.clean,
            repeat=plan.fixed_tokens,
            tokenizer=tokenizer,
            pairs=plan.pairs if plan.protocol.resample else None,
        )
    except (LookupError, OSError):  # what is missing is made by the decision
        pass
    if evaluation and not options.tasks:
        finished = ComparisonData(evaluation[0], evaluation[0], {}, 0)  # of which only the first is read
        plan = replace(plan, evaluation=evaluation_set(finished, options.judge or [*plan.evaluation.judged]))
    if data is not None:
        return replace(plan, tokens=data.budget_tokens, data=data)
    if budget:
        return replace(plan, tokens=budget[0], limit=", by the finished corpora")
    return plan if plan.fixed_tokens else _by_files(settings, plan)


def _by_files(settings: MachineSettings, plan: Plan) -> Plan:
    sizes = [_tokens(settings, recipe) for recipe in plan.arms.recipes.values()]
    known = [size for size in sizes if size is not None]
    if not known or min(known) >= plan.tokens:
        return plan
    step = 2 * plan.proxy.step_tokens
    limit = ", by the size of the sources' files; the corpora are not made yet"
    return replace(plan, tokens=max(step, min(known) // step * step), limit=limit)


def _tokens(settings: MachineSettings, recipe: Recipe) -> int | None:
    """The most tokens that the files of a recipe's sources may have; None for one that is not of local files."""
    total = 0
    for source in recipe.sources:
        placed = settings.placed(source)
        if not isinstance(placed, Files):
            return None
        for shard in placed.shards():
            if not files.is_local(shard.path):
                return None
            each = TOKENS_A_COMPRESSED_BYTE if shard.path.endswith(COMPRESSED) else TOKENS_A_BYTE
            total += each * Path(shard.path).stat().st_size
    return total


def _of_clean(settings: MachineSettings, plan: Plan, options: DecisionOptions) -> EvaluationSet:
    """The expected documents, of the clean text not more than a local file of JSON Lines has."""
    evaluation = plan.evaluation
    if options.clean is None:
        return evaluation
    base = plan.arms.recipes[plan.arms.base]
    [source] = clean_recipe(settings, base, options.clean).sources
    paths = [shard.path for shard in source.shards()] if isinstance(source, Files) else []
    if len(paths) != 1 or not paths[0].endswith(".jsonl") or not Path(paths[0]).is_file():
        return evaluation
    with open(paths[0], "rb") as file:
        there = sum(1 for line in file if line.strip())
    of_clean = evaluation.set_of == evaluation.names.index(CLEAN)
    kept = ~of_clean | (np.cumsum(of_clean) <= there)
    return EvaluationSet(evaluation.names, evaluation.set_of[kept], evaluation.size[kept], evaluation.judged)

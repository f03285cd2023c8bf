"""The check of a recipe before a run: every problem with its keys and files, and an estimate of time and space.

Sources and steps answer for their own files. Remote files are only read by a deep check.

The estimate gives ranges, from the sizes of the files and from measured rates. The rates were measured with the demo
(9.9 MB of WARC files, 3,573 pages, two cores of a cloud machine, kernels compiled), and by the benchmarks
(docs/explanation/benchmarks.md) where that is noted. Another crawl or another machine may differ by a factor of two.
"""

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gristmill.flows.machine.context import check_executor
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.machine.wrong_values import listed
from gristmill.flows.recipe import own_steps
from gristmill.flows.recipe.columns import expressions, of_export, of_groups
from gristmill.flows.recipe.errors import MAX_FINDINGS, Finding, Origin, RecipeError, limited
from gristmill.flows.recipe.first_look import annotation_problems, of_first_records, unread_urls
from gristmill.flows.recipe.given_files import check_tokenizer_file, training_problems
from gristmill.flows.recipe.recipe import Recipe, read, validated
from gristmill.flows.recipe.remarks import few_shards, remarks_of
from gristmill.flows.recipe.rewritten import rewrite_problems
from gristmill.flows.recipe.shortages import is_remote_short, shortages
from gristmill.flows.recipe.steps import BUILT_IN
from gristmill.flows.recipe.trunk import trained_tokens
from gristmill.flows.recipe.variants import texts_alone
from gristmill.storage import files
from gristmill.storage.home import Home
from gristmill.storage.settings import FOLDER
from gristmill.tasks.documents.step import CorpusStep, Problem, Step, base_name_of, named_kind
from gristmill.tasks.engine import own_code
from gristmill.tasks.engine.extras import MissingExtraError
from gristmill.tasks.reading.formats.own import Own
from gristmill.tasks.reading.formats.source import Inspection
from gristmill.tasks.reading.sources import Source
from gristmill.tasks.url.canonical import Canonical
from gristmill.tasks.url.lists import list_problems

log = logging.getLogger(__name__)

LINE_SECONDS = 10.0  # between two lines while sources are looked at


def source_problems(
    sources: Mapping[int, Source], settings: MachineSettings, deep: bool
) -> tuple[list[Inspection], list[Problem]]:
    """Examine the files of sources, given by their paths in the recipe. Returns what is known of them, and problems.
    Sources after the first MAX_FINDINGS problems are not examined."""
    inspections: list[Inspection] = []
    problems: list[Problem] = []
    until = time.monotonic() + LINE_SECONDS
    for index, source in sources.items():
        if len(problems) >= MAX_FINDINGS - 1:  # and one says that there are more
            break
        inspections.append(settings.placed(source).inspect(deep))
        problems += [(("sources", index, *key), what) for key, what in inspections[-1].problems]
        if time.monotonic() > until:
            log.warning("checked %s of %s sources", f"{len(inspections):,}", f"{len(sources):,}")
            until += LINE_SECONDS
    return inspections, problems


def step_problems(steps: Mapping[int, Step], settings: MachineSettings, deep: bool) -> Iterator[Problem]:
    """Problems with the files that steps name. The steps are given by their paths in the recipe."""
    for index, step in steps.items():
        try:
            problems = own_code.call(f"step {step.step}", settings.placed(step).problems, deep, accept=list)
        except own_code.OwnCodeError as error:
            problems = [((), str(error))]
        for key, what in problems:
            yield ("steps", index, *key), what


def takedown_problems(recipe: Recipe, settings: MachineSettings, deep: bool) -> Iterator[Problem]:
    """Problems with the takedown lists of the recipe."""
    for nth, address in enumerate(settings.placed(recipe).takedowns):
        yield from list_problems(address, ("takedowns", nth), deep, takedowns=Canonical())


def evaluation_problems(recipe: Recipe, settings: MachineSettings, deep: bool) -> Iterator[Problem]:
    """Problems with the texts on which models are evaluated."""
    for source in texts_alone(recipe, settings.placed(recipe).evaluation).sources if recipe.evaluation else ():
        for _, what in source.inspect(deep).problems:
            yield ("evaluation", source.name), what


def home_problems(settings: MachineSettings) -> Iterator[str]:
    """Why the home or the local folder is not writable. A remote home is not checked."""
    for variable, folder in {"GRISTMILL_HOME": settings.home, "GRISTMILL_LOCAL": settings.local_folder}.items():
        if variable == "GRISTMILL_LOCAL" and folder == settings.home:
            continue
        if not files.is_local(folder):
            continue
        above = existing_folder(folder)
        if not os.path.isdir(above):
            yield f"{variable} is {folder}, but {above} is a file; set it to a folder"
        else:
            try:
                # rights alone do not say it: the disk may be mounted to be read only
                with tempfile.TemporaryFile(dir=above):
                    pass
            except OSError as error:
                yield f"{variable} is {folder}, but {above} cannot be written: {error.strerror}; give another folder"


def executor_problems(settings: MachineSettings) -> Iterator[str]:
    """Why the executor cannot start."""
    try:
        check_executor(settings)
    except (MissingExtraError, ValueError) as error:
        yield str(error)


def existing_folder(folder: str) -> str:
    """The folder, or its nearest existing parent."""
    while not os.path.exists(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    return folder


# Bytes that a worker holds before its first job, and more with a shard: .7 GB at 10 million documents in 160 files.
WORKER, SHARD = 300 << 20, 400 << 20
# Bytes that a byte of the tokenizer's sample takes in its job: 408 MB for 100 MB.
SAMPLE = 4


@dataclass(frozen=True)
class LargestJob:
    """`bytes`: memory of a job and its worker. `work`: what the job does."""

    bytes: int
    work: str


def largest_job(recipe: Recipe, documents: int, text_bytes: int) -> LargestJob:
    """The job that needs the most memory. `documents`, `text_bytes`: of all sources.

    For each step all documents count, as if earlier steps dropped none. This is an upper bound, except for the share of
    near-duplicates, and for a key that very many documents share, such as a template in millions.
    """
    held = [(SHARD, "documents of a shard")]
    for step in recipe.steps:
        of_step = own_code.call(f"step {step.step}", step.job_memory, documents, text_bytes, accept=list)
        held += [(size, f"{step.step}, {what}") for size, what in of_step]
    if recipe.mixture is not None and recipe.tokenizer.path is None:
        held.append((SAMPLE * min(recipe.tokenizer.sample_bytes, text_bytes), "the tokenizer's sample"))
    size, work = max(held)
    return LargestJob(WORKER + size, work)


# Bytes of a page in a WARC file, packed: 2,490 pages of a crawl in 38 MB.
PAGE_BYTES = 15_300
# Bytes of packed WARC files that one core reads and extracts a second: 2,490 pages in 7.3 s
# (docs/explanation/benchmarks.md).
ARCHIVE_RATE = 5_200_000
# Bytes of text for each byte of a packed WARC file, and of other packed files.
ARCHIVE_TEXT, PACKED_TEXT = 2.05, 3.0
# Bytes of a document that is text already.
DOCUMENT_BYTES = 4_000
# Bytes of text a second and core: all rules (26 to 34 MB/s) and near-duplicates (600 MB in 9 s on two cores).
TEXT_RATE = 30_000_000
# Seconds to start the workers, and for each stage.
START, STAGE = 15.0, 2.0
# Bytes of the home for each byte of text: 12.3 MB of 20.3 MB.
HOME_TEXT = 0.6
# Floating point operations a second and core in training: 491,520 tokens of 1.33 million parameters in 118 s.
TRAINING_RATE = 17e9
UNCERTAINTY = 2.0


@dataclass(frozen=True)
class Estimate:
    """`input_bytes`: of the sources' files. `seconds`, `bytes`: from, to; None where they rest on something that is not
    known: `unsized`, sources whose size is not, and for `seconds` `unrated`, steps whose speed is not, since it is that
    of a model. `least_bytes`: of the home for what is known. `documents`, `text_bytes`: of the sources of a known size,
    about. `cores`: that the time is for, as many as have a shard. `largest_job`: None where it was not asked for or
    rests on a size that is not known."""

    input_bytes: int
    documents: int
    text_bytes: int
    cores: int
    seconds: tuple[float, float] | None
    bytes: tuple[int, int] | None
    least_bytes: int
    unsized: tuple[str, ...]
    unrated: tuple[str, ...]
    largest_job: LargestJob | None = None

    @property
    def sentence(self) -> str:
        if self.bytes is None:
            return (
                f"estimate: none, because the size of {listed(self.unsized)} is unknown. To measure it, run "
                "the recipe with `limit: 20000`, then `gristmill decide capacity`"
            )
        time = f"unknown time, because the speed of {', '.join(self.unrated)} is unknown"
        if self.seconds is not None:
            low, high = map(_duration, self.seconds)
            time = f"{low} to {high} on {self.cores} core{'s' * (self.cores != 1)}"
        least, most = map(_size, self.bytes)
        job = self.largest_job
        holds = f"; the largest job needs {_size(job.bytes)} of memory ({job.work})" if job else ""
        return (
            f"estimate: {time}, {least} to {most} in the home{holds}; for {_size(self.input_bytes)} of "
            f"sources, with rates of web pages on another machine: a factor of {UNCERTAINTY:.0f} both ways, more for "
            "unusual files"
        )


def estimate(recipe: Recipe, inspections: Sequence[Inspection], settings: MachineSettings) -> Estimate:
    """Estimate the cost of the whole recipe if nothing is reused."""
    cores = min(settings.workers or os.cpu_count() or 1, max(1, sum(each.shards for each in inspections)))
    given = packed = text = documents = 0.0
    unsized = []
    for each in inspections:
        size = _known_bytes(each.bytes, recipe.limit)
        if size is None:
            unsized.append(each.source.name)
            continue
        given += size
        if each.source.is_crawl:
            packed += size
            text += size * ARCHIVE_TEXT
            documents += size / PAGE_BYTES
        else:
            written = size * (PACKED_TEXT if each.is_packed else 1)
            text += written
            documents += written / DOCUMENT_BYTES
    passes = 1 + sum(isinstance(step, CorpusStep) for step in recipe.steps)
    seconds = START + STAGE * (len(recipe.steps) + 4) + (packed / ARCHIVE_RATE + passes * text / TEXT_RATE) / cores
    space = HOME_TEXT * text + sum(step.disk_bytes for step in recipe.steps)
    unrated = tuple(step.step for step in recipe.steps if step.has_unknown_speed)
    if recipe.mixture is not None:
        model, training = recipe.model, recipe.training
        parameters = model.parameters(_vocab_size(recipe, settings))
        tokens = training.token_budget(model.seq_len)
        with suppress(OSError, ValueError):  # what is wrong with a trunk is a finding of its own
            tokens = trained_tokens(settings, recipe)
        seconds += 6 * parameters * tokens / TRAINING_RATE / cores
        # weights and two moments of four bytes, in the checkpoints that are kept, the middle one, and that at the peak
        space += parameters * 4 * (1 + 3 * (training.keep_checkpoints + 1 + (training.schedule == "wsd")))
    return Estimate(
        round(given),
        round(documents),
        round(text),
        cores,
        None if unsized or unrated else (seconds / UNCERTAINTY, seconds * UNCERTAINTY),
        None if unsized else (round(space / UNCERTAINTY), round(space * UNCERTAINTY)),
        round(space / UNCERTAINTY),
        tuple(unsized),
        unrated,
    )


def _known_bytes(size: int | None, limit: int | None) -> int | None:
    """The bytes of a source that are read. `size`: of all its files."""
    if limit is None:
        return size
    return limit * PAGE_BYTES if size is None else min(size, limit * PAGE_BYTES)


def _vocab_size(recipe: Recipe, settings: MachineSettings) -> int:
    with suppress(OSError, ValueError):  # what is wrong with the file is a finding of its own
        if (size := check_tokenizer_file(settings, recipe)) is not None:
            return size
    return recipe.tokenizer.vocab_size


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _size(size: float) -> str:
    for unit, length in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= length:
            return f"{size / length:.1f} {unit}"
    return f"{size / 1e3:.0f} kB"


_SOURCE: TypeAdapter[Source] = TypeAdapter(Source)


@dataclass(frozen=True)
class Checked:
    """The result of a check. findings: all problems. estimate: None for a recipe that cannot be read. unseen: what only
    a deep check examines. remarks: settings that are valid but may be unintended."""

    findings: tuple[Finding, ...]
    estimate: Estimate | None = None
    unseen: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def check(source: Any, settings: MachineSettings, deep: bool = False) -> Checked:
    """Check a recipe, given as for `gristmill.flows.recipe.recipe.load`, without running it.

    `deep`: also read remote files, and import the modules of users' steps. Raises FileNotFoundError for a missing
    recipe.
    """
    try:
        data, origin = read(source)
    except RecipeError as error:
        return Checked(error.findings)
    own = {} if deep or isinstance(data, Recipe) else _own_steps(data)
    unseen = [f"your step {name}" for name in own.values()]
    if own:  # the lines are those of the file with them
        data, origin = (
            {**data, "steps": [s for index, s in enumerate(data["steps"]) if index not in own]},
            replace(origin, lines=None),
        )
    try:
        recipe = data if isinstance(data, Recipe) else validated(data, origin)
    except RecipeError as error:
        findings = [f for f in error.findings if not (own and f.key.endswith(".best"))]
        findings += _of_files(origin, data, _sources_alone(data, origin), {}, settings, deep)[1]
        return Checked((*findings, *_of_home(origin, settings), *_of_executor(origin, settings)), unseen=tuple(unseen))
    result = _checked(recipe, data, origin, settings, deep, unseen)
    result = replace(result, findings=(*result.findings, *_of_executor(origin, settings)))
    if not any(finding.key.startswith("sources") for finding in result.findings):
        values = data if isinstance(data, Mapping) else recipe.model_dump(mode="json")
        troubles, remarks = of_first_records(recipe, settings)
        troubles += annotation_problems(recipe, settings)
        more = [origin.finding(values, path, what) for path, what in troubles]
        remarks += unread_urls(recipe, settings)
        result = replace(result, findings=(*result.findings, *more), remarks=(*result.remarks, *remarks))
    assert result.estimate is not None, "the recipe is readable"
    if result.estimate.unsized:
        return result
    job = largest_job(recipe, result.estimate.documents, result.estimate.text_bytes)
    return replace(result, estimate=replace(result.estimate, largest_job=job))


def before_run(recipe: Recipe, settings: MachineSettings) -> None:
    """Raise RecipeError for problems that would fail later, such as missing files or a home that is not writable."""
    findings = _checked(recipe, recipe, Origin(recipe.name), settings, False, []).findings
    if findings:
        raise RecipeError(findings)


def _checked(
    recipe: Recipe, data: Any, origin: Origin, settings: MachineSettings, deep: bool, unseen: list[str]
) -> Checked:
    values = data if isinstance(data, Mapping) else recipe.model_dump(mode="json")
    troubles = list(shortages(recipe, settings))
    # what its packages are missing for cannot be looked at
    short = {path[:2] for path, _ in troubles}
    named = (
        {index: source for index, source in enumerate(recipe.sources) if ("sources", index) not in short},
        {index: step for index, step in enumerate(recipe.steps) if ("steps", index) not in short},
    )
    inspections, findings = _of_files(origin, values, *named, settings, deep)
    if not is_remote_short(recipe, settings):
        troubles += [*takedown_problems(recipe, settings, deep), *evaluation_problems(recipe, settings, deep)]
        troubles += training_problems(recipe, settings)
    troubles += [*expressions(recipe.steps), *of_export(recipe), *of_groups(recipe)]
    troubles += rewrite_problems(
        recipe, settings, lambda other: _checked(other, other, Origin(other.name), settings, deep, []).findings
    )
    findings += [origin.finding(values, path, what) for path, what in troubles]
    needed = estimate(recipe, inspections, settings)
    findings += _of_home(origin, settings) or _of_space(origin, needed, settings)
    unseen += [f"remote files of {each.source.name}" for each in inspections if not each.is_complete]
    if not deep:
        unseen += [f"your engine {engine}" for engine in recipe.extract.asked if ":" in engine]
        unseen += [f"your reader {source.reader}" for source in recipe.sources if isinstance(source, Own)]
    remarks = (*remarks_of(recipe, settings), *(() if recipe.limit else few_shards(inspections, settings)))
    return Checked(limited(findings), needed, tuple(unseen), remarks)


def _own_steps(data: Any) -> dict[int, str]:
    """The user's steps of a recipe, by path. Only running their code shows more about them."""
    steps = data.get("steps") if isinstance(data, Mapping) else None
    if not isinstance(steps, list):
        return {}
    names = {index: step.get("step") for index, step in enumerate(steps) if isinstance(step, Mapping)}
    return {
        index: name
        for index, name in names.items()
        if isinstance(name, str)
        and base_name_of(name) not in BUILT_IN
        and named_kind(name) is None
        and own_steps.may_be_known(base_name_of(name))
    }


def _sources_alone(data: Any, origin: Origin) -> dict[int, Source]:
    """The readable sources of a recipe that cannot be read as a whole."""
    sources: dict[int, Source] = {}
    entries = data.get("sources") if isinstance(data, Mapping) else None
    for index, source in enumerate(entries if isinstance(entries, list) else []):
        try:
            sources[index] = _SOURCE.validate_python(source, context={FOLDER: origin.folder})
        except ValidationError:
            continue  # which the findings of the recipe name
    return sources


def _of_files(
    origin: Origin,
    data: Any,
    sources: Mapping[int, Source],
    steps: Mapping[int, Any],
    settings: MachineSettings,
    deep: bool,
) -> tuple[list[Inspection], list[Finding]]:
    inspections, problems = source_problems(sources, settings, deep)
    if (left := len(sources) - len(inspections)) > 0:
        problems.append((("sources",), f"has {left:,} more that were not checked; correct these first"))
    problems += step_problems(steps, settings, deep)
    return inspections, [origin.finding(data, path, what) for path, what in problems]


def _of_home(origin: Origin, settings: MachineSettings) -> list[Finding]:
    return [Finding(origin.name, "", what) for what in home_problems(settings)]


def _of_executor(origin: Origin, settings: MachineSettings) -> list[Finding]:
    return [Finding(origin.name, "", what) for what in executor_problems(settings)]


def _of_space(origin: Origin, needed: Estimate, settings: MachineSettings) -> list[Finding]:
    """Whether the disk of the home has enough space. Existing files of the home may be part of the required space."""
    if not files.is_local(settings.home):
        return []
    free = shutil.disk_usage(existing_folder(settings.home)).free
    least = needed.least_bytes
    if least <= free:
        return []
    held = sum(stage.bytes for stage in Home(settings.home).stages())
    if least <= free + held:
        return []
    what = f"GRISTMILL_HOME is {settings.home}, with {free:,} bytes free, but the run needs at least {least:,}"
    return [Finding(origin.name, "", f"{what}; use a larger disk, or set a `limit`")]

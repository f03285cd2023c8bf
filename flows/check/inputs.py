"""The files that a recipe names: whether they are there, and can be read. Remote ones are asked for only if allowed."""

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gristmill.flows.machine.engine_python import engine_python
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe import own_steps
from gristmill.flows.recipe.errors import Path
from gristmill.flows.recipe.given_files import check_tokenizer_file, initial_folder, tasks_folder
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.variants import texts_alone
from gristmill.storage import files, layout
from gristmill.storage.damage import RecordedFile
from gristmill.storage.remote.redact import redact_url
from gristmill.tasks.decontamination.step import Benchmark
from gristmill.tasks.extraction.extract import Extract
from gristmill.tasks.models.classifier import classifier_file
from gristmill.tasks.models.embedding.embedder import Embedder
from gristmill.tasks.models.embedding.embedding import Embedding
from gristmill.tasks.models.harm import Harm
from gristmill.tasks.models.language.language import Language
from gristmill.tasks.models.language.mixed_languages import MixedLanguages
from gristmill.tasks.models.model_files import check_fasttext, label_of
from gristmill.tasks.models.perplexity import models_by_language
from gristmill.tasks.models.perplexity.perplexity import Perplexity
from gristmill.tasks.models.quality.quality import Quality
from gristmill.tasks.models.topic import Topic
from gristmill.tasks.reading.listing import shards_of, tables_of
from gristmill.tasks.reading.sources import (
    SNAPSHOT,
    Archives,
    Code,
    Lines,
    Own,
    Pages,
    Selection,
    Snapshot,
    Source,
    Tables,
    Texts,
)
from gristmill.tasks.url.lists import list_files
from gristmill.training.evaluate.tasks import read_tasks
from gristmill.training.hub.weight_files import check_fits

# Settings that hold addresses of lists.
_LISTS = ("takedowns", "strict_substrings", "hard_words", "soft_words")
_PATTERNS = {
    Archives: "warc",
    Lines: "jsonl",
    Tables: "parquet",
    Texts: "text",
    Pages: "pages",
    Code: "code",
    Own: "files",
}

Trouble = tuple[Path, str]


@dataclass(frozen=True)
class SourceSize:
    """What is known of a source's files: how many, and their bytes; None for what only a remote server knows.

    `packed`: whether they are compressed; `seen`: whether they were looked for.
    """

    source: Source
    files: int | None
    bytes: int | None
    packed: bool
    seen: bool


def sources(
    given: Mapping[int, Source], settings: MachineSettings, deep: bool
) -> tuple[list[SourceSize], list[Trouble]]:
    """The sizes of sources, given by their places in the recipe, and what is wrong with their files."""
    sizes: list[SourceSize] = []
    troubles: list[Trouble] = []
    for at, source in given.items():
        size, wrong = _source(settings.placed(source), deep)
        sizes.append(size)
        troubles += [(("sources", at, *path), what) for path, what in wrong]
    return sizes, troubles


def _source(source: Source, deep: bool) -> tuple[SourceSize, list[Trouble]]:
    if isinstance(source, Snapshot | Selection):
        return _of_crawl(source, deep)
    key = _PATTERNS[type(source)]
    if deep and isinstance(source, Own):
        try:
            own_steps.function_at(source.reader)
        except ValueError as error:
            return SourceSize(source, None, None, True, False), [(("reader",), str(error))]
    found: dict[str, int | None] = {}
    troubles: list[Trouble] = []
    patterns = getattr(source, key)
    known = True
    for at, pattern in enumerate(patterns):
        if not files.is_local(pattern) and not deep:
            known = False
            continue
        try:
            shards = shards_of(source.model_copy(update={key: (pattern,)}))
        except (OSError, ValueError, RuntimeError) as error:
            troubles.append(((key, at), _sentence(error, pattern)))
            continue
        for shard in shards:
            if shard.path in found:
                continue
            found[shard.path] = None
            if files.is_local(shard.path) or (deep and len(found) == 1):
                try:
                    found[shard.path] = _size(shard.path, isinstance(source, Code))
                except (OSError, RuntimeError) as error:
                    troubles.append(((key, at), _sentence(error, shard.path)))
    if known and not troubles:
        try:
            shards_of(source)  # names that two patterns give
        except ValueError as error:
            troubles.append(((key,), str(error)))
    if isinstance(source, Lines | Tables) and source.columns == "*" and found and not troubles:
        troubles += _every_column(source, next(iter(found)))
    if found and all(size == 0 for size in found.values()):
        troubles.append(((key,), f"is {', '.join(patterns)}, of which every file is empty; give files with documents"))
    sizes = [size for size in found.values() if size is not None]
    whole = known and len(sizes) == len(found)
    packed = not isinstance(source, Archives) and any(not path.endswith((".jsonl", ".json", ".txt")) for path in found)
    return SourceSize(source, len(found) if known else None, sum(sizes) if whole else None, packed, known), troubles


def _size(path: str, may_be_folder: bool) -> int | None:
    if not may_be_folder:
        return files.info(path)["size"]
    from gristmill.storage.fingerprint import stated  # here, since it takes a network library

    return stated(path).size


def _every_column(source: Lines | Tables, path: str) -> Iterator[Trouble]:
    from gristmill.tasks.reading.own_columns import check_every, file_columns  # here, since it takes pyarrow

    if not files.is_local(path):
        return
    try:
        names = file_columns(path, "parquet" if isinstance(source, Tables) else "jsonl", source.read_columns)
        check_every(source.name, names)
    except (OSError, EOFError, ValueError) as error:
        yield ("columns",), _sentence(error, path)


def _of_crawl(source: Snapshot | Selection, deep: bool) -> tuple[SourceSize, list[Trouble]]:
    key = "snapshot" if isinstance(source, Snapshot) else "index"
    of_index = [] if isinstance(source, Snapshot) else [p for p in source.index if not _is_snapshot(p)]
    local = files.is_local(source.base) if len(of_index) < 1 else all(map(files.is_local, of_index))
    count: int | None = None
    troubles: list[Trouble] = []
    if local or deep:
        try:
            paths = [s.path for s in shards_of(source)] if isinstance(source, Snapshot) else tables_of(source)
            count = len(paths)
            for path in paths[:1]:
                files.info(path)
        except (OSError, ValueError, RuntimeError) as error:
            troubles.append(((key,), _sentence(error, redact_url(str(getattr(source, key))))))
    return SourceSize(source, count if key == "snapshot" else None, None, True, local or deep), troubles


def _is_snapshot(name: str) -> bool:
    return re.fullmatch(SNAPSHOT, name) is not None


def _sentence(error: Exception, path: str) -> str:
    """An error of a file as a sentence with its remedy."""
    if isinstance(error, PermissionError):
        return f"the file {redact_url(error.filename or path)} cannot be read by this user; change its permissions"
    if isinstance(error, FileNotFoundError):
        remedy = "correct the path or pattern, which is taken from the folder of the recipe's file if it is relative"
        if "/harvest/" in path:
            remedy = "write the files by `gristmill harvest`"
        return f"{str(error) if error.filename is None else f'{redact_url(path)} does not exist'}; {remedy}"
    return " ".join(str(error).split())


def steps(given: Mapping[int, Any], settings: MachineSettings, deep: bool) -> Iterator[Trouble]:
    """What is wrong with the lists and earlier crawls that steps name."""
    for at, unplaced in given.items():
        step = settings.placed(unplaced)
        if deep and isinstance(step, Extract) and ":" in step.engine:
            try:
                own_steps.function_at(step.engine)
            except ValueError as error:
                yield ("steps", at, "engine"), str(error)
        for key in _LISTS:
            for nth, address in enumerate(getattr(step, key, ())):
                yield from _list(address, ("steps", at, key, nth), deep)
        for nth, address in enumerate(getattr(step, "blocklists", ())):
            yield from _list(address, ("steps", at, "blocklists", nth), deep, step.categories)
        for key in ("lists", "stop_words_by_language"):
            for language, address in getattr(step, key, {}).items():
                if isinstance(address, str):
                    yield from _list(address, ("steps", at, key, language), deep)
        for nth, benchmark in enumerate(getattr(step, "benchmarks", ())):
            yield from _benchmark(settings.placed(benchmark), ("steps", at, "benchmarks", nth), deep)
        for nth, folder in enumerate(getattr(step, "earlier", ())):
            if files.is_local(folder) or deep:
                yield from _earlier(folder, ("steps", at, "earlier", nth))
        if isinstance(step, (Quality, Harm)) and step.model is not None and (files.is_local(step.model) or deep):
            yield from _classifier(step, step.model, ("steps", at, "model"))
        asked = step.model if isinstance(step, (Language, MixedLanguages, Topic)) else None
        if asked is not None and (files.is_local(asked) or deep):
            try:
                step.pinned()
            except (OSError, ValueError, RuntimeError) as error:
                yield ("steps", at, "model"), _sentence(error, asked)
        if isinstance(step, Embedding):
            yield from _embedding(step, ("steps", at), deep)
        if isinstance(step, Perplexity):
            yield from _language_models(step, ("steps", at), deep)


def _classifier(step: Quality | Harm, model: str, path: Path) -> Iterator[Trouble]:
    try:
        label_of(check_fasttext(files.local_copy(model)), step.label)
        classifier_file.check(model, step)
    except (OSError, ValueError, RuntimeError) as error:
        yield path, _sentence(error, model)


def _embedding(step: Embedding, path: Path, deep: bool) -> Iterator[Trouble]:
    from gristmill.tasks.models.embedding import embedding, heads, onnx_model, sentence_embedder

    try:
        if step.kind == "onnx":
            onnx_model.runtime(step.device)
    except ImportError as error:
        yield (*path, "step"), str(error)
        return
    embedder = None
    if files.is_local(step.model) or deep:
        settings = step.part(Embedder)
        try:
            given = sentence_embedder.embedder_files(step.model, step.kind)
            width = sentence_embedder.load(given, settings).dimension
            embedder = embedding.described(given.model.digest, given.tokenizer.digest, settings)
        except (OSError, ValueError, RuntimeError) as error:
            yield (*path, "model"), _sentence(error, step.model)
    for name, head in step.heads.items():
        if not files.is_local(head) and not deep:
            continue
        try:
            loaded = heads.load(RecordedFile(head, files.checksum(head)))
            if embedder is not None:
                heads.check_fits(head, loaded, embedder, width)
        except (OSError, ValueError, RuntimeError) as error:
            yield (*path, "heads", name), _sentence(error, head)


def _language_models(step: Perplexity, path: Path, deep: bool) -> Iterator[Trouble]:
    for language, model in step.models.items():
        if files.is_local(model) or deep:
            try:
                models_by_language.check(model)
            except (OSError, ValueError, RuntimeError) as error:
                yield (*path, "models", language), " ".join(str(error).split())
    if step.cutoffs is not None and (files.is_local(step.cutoffs) or deep):
        try:
            step.pinned()
        except (OSError, ValueError, RuntimeError) as error:
            yield (*path, "cutoffs"), _sentence(error, step.cutoffs)


def takedowns(recipe: Recipe, settings: MachineSettings, deep: bool) -> Iterator[Trouble]:
    """What is wrong with the takedown lists of the recipe itself."""
    for nth, address in enumerate(settings.placed(recipe).takedowns):
        yield from _list(address, ("takedowns", nth), deep)


def evaluation(recipe: Recipe, settings: MachineSettings, deep: bool) -> Iterator[Trouble]:
    """What is wrong with the texts that models are evaluated on."""
    for source in texts_alone(recipe, settings.placed(recipe).evaluation).sources if recipe.evaluation else ():
        for _, what in _source(source, deep)[1]:
            yield ("evaluation", source.name), what


def _list(address: str, path: Path, deep: bool, categories: tuple[str, ...] | None = None) -> Iterator[Trouble]:
    if not files.is_local(address) and not deep:
        return
    try:
        if categories is None and files.is_local(address) and files.is_folder(address):
            yield path, f"the list {address} is a folder; name a file"
            return
        for each in list_files(address, categories or ()):
            files.info(each)
    except (OSError, ValueError, RuntimeError) as error:
        what = _sentence(error, address)
        yield path, what if ";" in what else f"{what}; correct the address"


def _benchmark(benchmark: Benchmark, path: Path, deep: bool) -> Iterator[Trouble]:
    if not files.is_local(benchmark.path) and not deep:
        return
    from gristmill.tasks.decontamination.benchmarks import read_items  # here, since it takes pyarrow

    try:
        read_items(benchmark.path, benchmark)
    except (OSError, ValueError, RuntimeError) as error:
        yield path, " ".join(str(error).split())


def _earlier(folder: str, path: Path) -> Iterator[Trouble]:
    try:
        manifest = layout.manifest(folder)
    except layout.ManifestError as error:
        yield path, " ".join(str(error).split())
        return
    if manifest is None or "inputs_layout" not in manifest["result"]:
        yield path, f"{folder} is no finished stage `near_duplicates`; give its folder in the home of an earlier crawl"


def training(recipe: Recipe, settings: MachineSettings) -> Iterator[Trouble]:
    """What is wrong with the tokenizer's file, the weights that a training begins with, its tasks, and the environment
    of its engine."""
    try:
        engine_python(settings, recipe.training.engine)
    except ValueError as error:
        yield ("training", "engine"), f"{error}"
    try:
        check_tokenizer_file(settings, recipe)
    except (OSError, ValueError) as error:
        yield ("tokenizer", "path"), f"{error}".removeprefix("tokenizer.path ")
    try:
        folder = initial_folder(settings, recipe)
        if folder is not None:
            check_fits(folder, recipe.model)
    except (OSError, ValueError, KeyError) as error:
        yield ("training", "init_from"), f"{error}".removeprefix("training.init_from ")
    try:
        tasks = tasks_folder(settings, recipe)
        if tasks is not None:
            read_tasks(tasks)
    except (OSError, ValueError) as error:
        yield ("training", "eval_tasks"), f"{error}".removeprefix("training.eval_tasks ")


def home(settings: MachineSettings) -> Iterator[str]:
    """Why the home, or the local folder, cannot be written. A remote home is not asked."""
    for variable, folder in {"GRISTMILL_HOME": settings.home, "GRISTMILL_LOCAL": settings.local_folder}.items():
        if variable == "GRISTMILL_LOCAL" and folder == settings.home:
            continue
        if not files.is_local(folder):
            continue
        above = existing(folder)
        if not os.path.isdir(above):
            yield f"{variable} is {folder}, but {above} is a file; give a folder"
        else:
            try:
                # rights alone do not say it: the disk may be mounted to be read only
                with tempfile.TemporaryFile(dir=above):
                    pass
            except OSError as error:
                yield f"{variable} is {folder}, but {above} cannot be written: {error.strerror}; give another folder"


def existing(folder: str) -> str:
    """The folder, or the nearest one above it that is there."""
    while not os.path.exists(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    return folder

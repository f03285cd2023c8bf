"""Search all files of a home and of exports for texts that are known only by marks (`gristmill.tasks.search.marks`)."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from gristmill.flows.machine.context import job_options
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.dependents.graph import HomeGraph
from gristmill.flows.reports.search.opened import code_sent, executor, in_order
from gristmill.storage import files
from gristmill.storage.remote.addresses import file_system
from gristmill.tasks.engine import options
from gristmill.tasks.search import marks as mark_search
from gristmill.tasks.search.file_texts import UNKNOWN
from gristmill.tasks.search.marks import BYTES, FileResult, FileSearch, Marks, SearchedFile

# What a file of an unknown format in a stage is, by the end of the stage's name.
_FORMATS = {
    "word_index": "indexes of words",
    "perplexity_model": "KenLM models",
    "_model": "fastText models",
    "tokenizer": "tokenizers",
}
FEW_BYTES = 1 << 28  # that threads of this process search: some seconds, which is what an executor takes to start
_JOB_BYTES, _JOB_FILES = 1 << 24, 64  # of a job, about


@dataclass(frozen=True)
class Remnant:
    """A file that has marks of a document. `marks`, `of`: how many, and how many the document has."""

    path: str
    document: str
    marks: int
    of: int


@dataclass
class Scanned:
    """`files`, `bytes`: what was searched; `remnants`: what was found; `skipped`: by the reason, how many files were
    not searched, with an example; `unread`: files that could not be read, a sentence each."""

    files: int = 0
    bytes: int = 0
    remnants: list[Remnant] = field(default_factory=list)
    skipped: dict[str, tuple[int, str]] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)


def scan(
    settings: MachineSettings,
    graph: HomeGraph,
    marks: Marks,
    folders: Iterable[str],
    without: Collection[str] = (),
    progress: Callable[[str], None] = lambda path: None,
    few: int = FEW_BYTES,
) -> Scanned:
    """Search every file below some folders for marks. `without`: paths that are left out, such as the receipt; `few`:
    bytes of the home from which on its files are jobs of the machine's executor.

    Reads all files once; a job holds some megabytes of text. What is outside of the home is searched by this process,
    since workers on other machines may not have it.
    """
    scanned = Scanned()
    tokenizers: dict[str, str] = {}
    options.configure(job_options(settings))
    for folder in folders:
        found = [
            SearchedFile(path, size, _tokenizer(graph, path, tokenizers))
            for path, size in _files_below(folder)
            if path not in without
        ]
        here = folder != settings.home or sum(one.size for one in found) <= few
        for result in _results(settings, marks, found, here):
            progress(result.file.path)
            _add(scanned, marks, result)
    return scanned


def _results(
    settings: MachineSettings, marks: Marks, found: Sequence[SearchedFile], here: bool
) -> Iterator[FileResult]:
    """What was found in each file, in their order."""
    jobs = [*_jobs(found)]
    with executor(settings, here) as workers:
        search = FileSearch(marks, code_sent(workers, mark_search.__name__))
        for results in in_order(workers.map(search, jobs)):
            yield from results


def _jobs(found: Sequence[SearchedFile]) -> Iterator[tuple[SearchedFile, ...]]:
    """Files that are searched together."""
    job: list[SearchedFile] = []
    for one in found:
        job.append(one)
        if len(job) == _JOB_FILES or sum(each.size for each in job) >= _JOB_BYTES:
            yield tuple(job)
            job = []
    if job:
        yield tuple(job)


def _add(scanned: Scanned, marks: Marks, result: FileResult) -> None:
    path = result.file.path
    if result.unread:
        scanned.unread.append(result.unread)
    elif result.skipped:
        why = _format(path) or result.skipped if result.skipped == UNKNOWN else result.skipped
        count, example = scanned.skipped.get(why, (0, path))
        scanned.skipped[why] = count + 1, example
    else:
        scanned.files, scanned.bytes = scanned.files + 1, scanned.bytes + result.file.size
    counts = np.bincount(marks.owners[np.array(result.places, np.int64)], minlength=len(marks.ids))
    scanned.remnants += [
        Remnant(path, marks.ids[at], int(counts[at]), int(marks.totals[at])) for at in np.flatnonzero(counts)
    ]


def _format(path: str) -> str:
    """What a file is by its stage; "" if that is unknown."""
    name = path.rpartition("/stages/")[2].partition("/")[0].rpartition("-")[0]
    return next((what for end, what in _FORMATS.items() if name.endswith(end)), "")


def _files_below(folder: str) -> Iterator[tuple[str, int]]:
    """All files below a folder with their sizes, sorted."""
    fs, inner = file_system(folder)
    fs.invalidate_cache()
    entries = fs.find(inner, detail=True)
    is_local = files.is_local(folder)
    for path in sorted(entries):
        yield (path if is_local else fs.unstrip_protocol(path)), int(entries[path]["size"])


def _tokenizer(graph: HomeGraph, path: str, known: dict[str, str]) -> str:
    """The file of the tokenizer by which the token shards of a file's stage are decoded; "" where it is unknown."""
    label = path.rpartition("/stages/")[2].partition("/")[0]
    if label not in known:
        known[label] = ""
        names = [name for name in graph.origins([label]) if graph.stages[name].name == "tokenizer"]
        if label in graph.stages and not names:  # of a recipe without a mixture
            known[label] = BYTES
        elif len(names) == 1 and names[0] not in graph.collected:
            tokenizer = graph.stages[names[0]]
            known[label] = files.join(tokenizer.folder, tokenizer.result["tokenizer"]["file"])
    return known[label]

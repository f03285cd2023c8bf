"""The receipt of a takedown: what was removed, by digest, what had read it, and searches for what remains.

<home>/receipts/<id>.json    the state before the takedown, written first; then each search, the newest last
<home>/receipts/<id>.txt     the same as sentences

A receipt does not contain text of documents, only marks for finding copies (`gristmill.tasks.search.marks`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import orjson
from pydantic import TypeAdapter

from gristmill.flows.explore.dependents.affected import Affected
from gristmill.flows.explore.dependents.documents import FoundDocuments
from gristmill.flows.explore.dependents.erasure import LIKE, Request, Target, answers_about
from gristmill.flows.explore.dependents.scan import Scanned, scan
from gristmill.flows.machine.runs import RecordedRun
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.dependents.graph import HomeGraph
from gristmill.storage import checked_json, files
from gristmill.storage.contents import ADDRESSES
from gristmill.storage.home import FinishedStage
from gristmill.storage.printable import redact_url, redact_user
from gristmill.tasks.engine.code_version import release
from gristmill.tasks.reading.listing import Shard, recorded_file
from gristmill.tasks.search.marks import MARKS, WORDS, Marks

FOLDER = "receipts"
_SHARDS = TypeAdapter(list[Shard])
_SHOWN = 20  # remnants in the text


@dataclass(frozen=True)
class Receipt:
    """A receipt. `value`: the content of its file."""

    id: str
    path: str
    value: Mapping[str, Any]

    @property
    def last(self) -> Mapping[str, Any] | None:
        """The newest search."""
        return self.value["searches"][-1] if self.value["searches"] else None

    @property
    def is_clean(self) -> bool:
        """Whether the newest search found nothing and could read all files that may contain texts."""
        return self.last is not None and not self.last["remnants"] and not self.last["unread"]


def begin(
    home: str, graph: HomeGraph, request: Request, found: FoundDocuments, targets: Sequence[Target], report: Affected
) -> Receipt:
    """Record the state before a takedown. An existing receipt of the same request keeps its searches, and the state
    before the first takedown."""
    asked = {
        "entries": [redact_user(entry) for entry in request.entries],
        "lists": [{"file": path.rpartition("/")[2], "digest": files.checksum(path)} for path in request.lists],
        "texts": [files.checksum(path) for path in request.texts],
    }
    id_ = files.digest(orjson.dumps([asked, [target.id for target in targets]]))[:16]
    path = files.join(home, FOLDER, f"{id_}.json")
    if files.exists(path):
        return read(home, id_)
    value = {
        "begun": _now(),
        "release": release(),
        "request": asked,
        "documents": [asdict(target) for target in targets],
        "stages": [
            {"stage": one.stage, "documents": one.documents, "tokens": one.tokens, "shards": one.shards}
            for one in report.stages
            if one.documents
        ],
        "trained_on_it": [
            {"stage": label, "documents": count} for label, count in _trained(graph, report).items() if count
        ],
        "trainings": [
            {"stage": one.stage, "recipes": one.recipes, "documents_read": one.read, "first_step": one.first_step,
             "checkpoints": one.has_read}
            for one in report.trainings
        ],
        "exports": [{"address": redact_url(one.address), "label": one.label} for one in report.exports],
        "source_files": _source_files(graph, found),
        "answers": answers_about(graph, found.ids),
        "unknown": list(report.gaps),
        "searches": [],
    }  # fmt: skip
    checked_json.write(path, value)
    receipt = Receipt(id_, path, value)
    files.write_bytes(_text_path(path), "".join(f"{line}\n" for line in lines(receipt)).encode())
    return receipt


def read(home: str, id_: str) -> Receipt:
    """A receipt by its id or path. Raises LookupError, DamagedFileError."""
    path = id_ if id_.endswith(".json") else files.join(home, FOLDER, f"{id_}.json")
    try:
        return Receipt(path.rpartition("/")[2].removesuffix(".json"), path, checked_json.read(path))
    except FileNotFoundError:
        known = [name.removesuffix(".json") for name in files.names(files.join(home, FOLDER)) if name.endswith(".json")]
        raise LookupError(f"no receipt {id_} in {redact_url(home)}; there are {', '.join(known) or 'none'}") from None


def marks_of(receipt: Receipt) -> Marks:
    """The marks of its documents."""
    return Marks.of({one["id"]: one["marks"] for one in receipt.value["documents"]})


def search(
    settings: MachineSettings,
    graph: HomeGraph,
    receipt: Receipt,
    exports: Iterable[str] = (),
    progress: Callable[[str], None] = lambda path: None,
) -> Receipt:
    """Search the home, the local folder and exports for remnants, add the result to the receipt, and return it. This
    includes exports that recorded runs listed when the receipt was written, or list now, and all folders of earlier
    searches. Raises FileNotFoundError for a missing export that was never searched."""
    home = settings.home
    # a run with the list has released the runs that recorded the exports, so search all earlier folders again
    before = [each for one in receipt.value["searches"] for each in one["searched"]]
    known = [one.address for one in graph.exports] + [one["address"] for one in receipt.value["exports"]] + before
    given = [files.absolute(each) for each in exports]
    folders = [each for each in dict.fromkeys([settings.local_folder, *known, *given]) if not _is_within(each, home)]
    more = [each for each in folders if files.exists(each)]
    gone = [each for each in folders if each not in more]
    if wrong := [each for each in given if each in gone and each not in known]:
        raise FileNotFoundError(f"export not found: {redact_url(wrong[0])}. Check --export")
    without = {receipt.path, _text_path(receipt.path)}
    folder = files.join(home, FOLDER)
    without |= {files.join(folder, name) for name in files.names(folder)}
    scanned = scan(settings, graph, marks_of(receipt), [home, *more], without, progress)
    there = {label for label in graph.stages if label not in graph.collected}
    entry = {
        "when": _now(),
        "release": release(),
        "searched": [redact_url(each) for each in [home, *more]],
        "gone": [redact_url(each) for each in gone if each != settings.local_folder],
        "files": scanned.files,
        "bytes": scanned.bytes,
        "remnants": [asdict(one) for one in scanned.remnants],
        "to_delete": _to_delete(graph, scanned, [home, settings.local_folder], more),
        "not_searched": {why: {"files": n, "example": path} for why, (n, path) in sorted(scanned.skipped.items())},
        "unread": scanned.unread,
        "removed_stages": [one["stage"] for one in receipt.value["stages"] if one["stage"] not in there],
        "remaining_stages": _remaining(graph, scanned),
    }
    value = {**receipt.value, "searches": [*receipt.value["searches"], entry]}
    checked_json.write(receipt.path, value)
    searched = Receipt(receipt.id, receipt.path, value)
    files.write_bytes(_text_path(receipt.path), "".join(f"{line}\n" for line in lines(searched)).encode())
    return searched


def _is_within(folder: str, home: str) -> bool:
    return folder == home or folder.startswith(f"{home}/")


def _to_delete(graph: HomeGraph, scanned: Scanned, homes: Sequence[str], folders: Sequence[str]) -> list[str]:
    """Folders of exports, and other files outside of stages, with remnants."""
    stages = f"{files.join(graph.home, 'stages')}/"
    exports = [each for each in folders if each not in homes]
    found: dict[str, None] = {}
    for one in scanned.remnants:
        if not one.path.startswith(stages):
            found[next((each for each in exports if _is_within(one.path, each)), one.path)] = None
    return list(found)


def _remaining(graph: HomeGraph, scanned: Scanned) -> list[dict[str, Any]]:
    """The stages with remnants, the recipes whose recorded runs keep them, and these runs. For an extraction also its
    recipes, and whether documents were sampled from it for rewriting."""
    root = f"{files.join(graph.home, 'stages')}/"
    labels = {one.path.removeprefix(root).partition("/")[0] for one in scanned.remnants if one.path.startswith(root)}
    found = []
    for label in sorted(labels):
        runs = [run for run in graph.runs if label in graph.origins(run.stages)]
        one: dict[str, Any] = {
            "stage": label,
            "kept_by_recipes": sorted({run.name for run in runs}),
            "runs": [run.label for run in runs],
        }
        if label in graph.stages and graph.stages[label].name == "documents":
            readers = {graph.stages[each].name for each in graph.dependents([label]) if each in graph.stages}
            one |= {"recipes": _owners(graph, label), "is_sampled": "rewrites_sample" in readers}
        found.append(one)
    return found


def _owners(graph: HomeGraph, label: str) -> list[str]:
    """Names of the recipes whose sources a stage `documents` has read; if recipes have more sources, the ones with the
    fewest. Empty if no recorded run shows it."""
    formats = set(graph.stages[label].settings.get("formats", ()))
    runs = [run for run in graph.runs if label in graph.origins(run.stages)]
    others: dict[str, int] = {}
    for recipe in (recipe for run in runs for recipe in _recipes(run)):
        sources = {source["name"] for source in recipe["sources"]}
        if formats <= sources:
            count = len(sources - formats)
            others[recipe["name"]] = min(count, others.get(recipe["name"], count))
    return sorted(name for name, count in others.items() if count == min(others.values()))


def _recipes(run: RecordedRun) -> Iterator[Mapping[str, Any]]:
    """The recipe of a run, and the recipes that it rewrites, as recorded."""
    for value in (run.recipe, *run.outside.values()):
        if isinstance(value, Mapping) and {"name", "sources", "steps"} <= value.keys():
            yield value


def _trained(graph: HomeGraph, report: Affected) -> dict[str, int]:
    """Tokenizers and models of filters that were trained on texts with the documents, according to their inputs."""
    held = {one.stage: one.documents or 0 for one in report.stages}
    learned = [label for label in held if _learns(graph.stages[label])]
    return {label: max(map(lambda source: held.get(source, 0), _chosen(graph.stages[label]))) for label in learned}


def _learns(stage: FinishedStage) -> bool:
    return stage.name == "tokenizer" or stage.name.endswith("_model")


def _chosen(stage: FinishedStage) -> list[str]:
    """The stages that list the documents that a model was trained on."""
    names = [name for name in ("kept", "documents") if name in stage.read]
    return [stage.read[names[0]]] if names else [stage.label]


def _source_files(graph: HomeGraph, found: FoundDocuments) -> list[str]:
    """Files outside of the home with records of the documents."""
    paths: dict[str, None] = {}
    for label in sorted({one.stage for one in found.documents}):
        try:
            jobs = {job.number: job.record for job in graph.stages[label].jobs if ADDRESSES in job.record}
        except (OSError, RuntimeError):
            continue
        for one in found.documents:
            if one.stage == label and one.shard in jobs:
                shard = recorded_file(_SHARDS.validate_python(jobs[one.shard][ADDRESSES]), one.file)
                paths[shard.path] = None
    inside = files.join(graph.home, "stages")  # where rewrites were read
    return [path for path in paths if not path.startswith(inside)]


def lines(receipt: Receipt) -> Iterator[str]:
    """The receipt as sentences."""
    value, last = receipt.value, receipt.last
    near = sum(one["entry"].startswith(LIKE) for one in value["documents"])
    count = len(value["documents"])
    yield f"Takedown {receipt.id}, begun {value['begun']} UTC with gristmill {value['release']}"
    yield f"{count:,} documents, {near:,} of them near-duplicates of the others:"
    for one in value["documents"][:_SHOWN]:
        yield f"  {one['id']}  {one['url'] or one['file']}  {one['entry']}  xxh3-128 of the text {one['digest']}"
    if count > _SHOWN:
        yield f"  and {count - _SHOWN:,} more in {receipt.id}.json"
    for one in value["stages"]:
        tokens = "" if one["tokens"] is None else f", {one['tokens']:,} tokens"
        yield f"was in {one['stage']}: {one['documents']:,} documents{tokens}"
    for one in value["trained_on_it"]:
        yield (
            f"{one['stage']} was trained on texts with {one['documents']:,} of the documents, or on a sample of these; "
            "it keeps what it learned until it is made again without them"
        )
    for one in value["trainings"]:
        yield from _training_lines(one)
    if answers := value.get("answers"):
        yield f"answers of language models about them: {len(answers):,}, which are removed after the run"
    for path in value["source_files"]:
        yield f"source file outside of the home, which had the record: {path}"
    without = [one["id"] for one in value["documents"] if not one["marks"]]
    if without:
        yield (
            f"{len(without):,} documents have no phrase of {WORDS} words that other documents lack, such as "
            f"{without[0]}: copies of them cannot be told from other texts, and are not searched"
        )
    yield from (f"unknown: {gap}" for gap in value["unknown"])
    if last is None:
        yield f"not searched yet: gristmill home takedown --check {receipt.id}"
        return
    yield from _search_lines(receipt, last)


def _training_lines(one: Mapping[str, Any]) -> Iterator[str]:
    if one["documents_read"] == 0:
        yield f"{one['stage']} has the documents in its data, but read none of them"
        return
    read = "an unknown number" if one["documents_read"] is None else f"{one['documents_read']:,}"
    first = "" if one["first_step"] is None else f", the first at step {one['first_step']:,}"
    kept = ", ".join(map(str, one["checkpoints"])) or "none"
    yield (
        f"{one['stage']} read {read} of the documents{first}, and cannot forget them; kept checkpoints that have read "
        f"them: {kept}"
    )


def _search_lines(receipt: Receipt, last: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"searched {last['when']} UTC: {last['files']:,} files, {last['bytes']:,} bytes, for up to {MARKS} phrases of "
        f"{WORDS} words of each document"
    )
    yield from (f"  {each}" for each in last["searched"])
    yield from (f"not there any more: {each}" for each in last.get("gone", ()))
    if last["removed_stages"]:
        yield f"removed since: {', '.join(last['removed_stages'])}"
    for one in last["remnants"][:_SHOWN]:
        yield f"left: {one['path']} has {one['marks']} of {one['of']} phrases of {one['document']}"
    if len(last["remnants"]) > _SHOWN:
        yield f"and {len(last['remnants']) - _SHOWN:,} more in {receipt.id}.json"
    for path in last.get("to_delete", ()):  # missing in searches of earlier versions
        yield from _deletion(path)
    for one in last["remaining_stages"]:
        recipes = ", ".join(one["kept_by_recipes"]) or "none: gristmill home gc --delete --days 0 removes it"
        of = f", the extraction of {' or '.join(one['recipes'])}," if one.get("recipes") else ""
        yield f"{one['stage']}{of} is kept by runs of the recipes {recipes}"
        if one["stage"].startswith("documents-") and one["kept_by_recipes"]:
            yield from (f"  {line}" for line in _removal_of_extraction(receipt, one))
    if last.get("to_delete"):
        yield f"then search again: gristmill home takedown --check {receipt.id}"
    for why, each in last["not_searched"].items():
        yield f"not searched, {why}: {each['files']:,} files, such as {each['example']}"
    yield from (f"not readable: {each}" for each in last["unread"])
    if receipt.is_clean:
        yield "nothing of the documents was found in the files that were searched"
    else:
        paths = len({one["path"] for one in last["remnants"]})
        yield f"NOT CLEAN: {paths:,} files have parts of the documents, {len(last['unread']):,} could not be read"


def _removal_of_extraction(receipt: Receipt, one: Mapping[str, Any]) -> Iterator[str]:
    """The steps that remove a stage `documents`. `one`: as in `_remaining`."""
    documents = receipt.value["documents"]
    recipes = " or ".join(one.get("recipes") or one["kept_by_recipes"])
    yield f"1. begin the steps of {recipes} with {{step: url, takedowns: [LIST]}}, with the takedown list of the recipe"
    if by_id := sorted({each["url"] for each in documents if each["url"] and each["entry"].endswith(each["id"])}):
        yield f"   add these URLs to the list, since ids have no effect there: {', '.join(by_id[:_SHOWN])}"
    if without := sorted({each["file"] for each in documents if not each["url"]}):
        yield f"   remove documents without a URL from their source files: {', '.join(without[:_SHOWN])}"
    if one.get("is_sampled"):
        yield "   the sample of documents to rewrite is drawn again: others may enter it, and are asked about"
    yield f"2. gristmill corpus, with each of these recipes: {', '.join(one['kept_by_recipes'])}"
    yield from (f"3. gristmill home forget {run}" for run in one.get("runs", ()))
    yield "4. repeat this takedown: gristmill home takedown RECIPE, with the same entries and --write"


def _deletion(path: str) -> Iterator[str]:
    if path.endswith((".db", ".sqlite")):
        yield f"remove what has parts of the documents from the database {path}, such as a run in MLflow"
    elif path.rpartition("/")[2].count(".") and not files.is_folder(path):
        yield f"delete the file {path}"
    else:
        yield f"delete the export {path}, and its copies"


def _text_path(path: str) -> str:
    return f"{path.removesuffix('.json')}.txt"


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"

"""Answers of language models about documents that are taken down. Separate: answers are in the home beside the stages.

An answer is known by the digest of its request, which the stages that asked keep with the id of the document.
"""

from collections.abc import Collection, Iterator

from gristmill.flows.reports.dependents.graph import HomeGraph
from gristmill.storage import files, parquet
from gristmill.storage.home import FinishedStage
from gristmill.tasks.language_model.rewrite import ANSWER, asked_folder


def answers_about(graph: HomeGraph, ids: Collection[str]) -> list[str]:
    """Digests of the requests about some documents, but for those that were made for another document, too: two texts
    may begin alike. Reads the ids and digests of the stages that asked; holds the digests of the documents."""
    wanted = {digest for id_, digest in _asked(graph) if id_ in ids}
    if wanted:
        wanted -= {digest for id_, digest in _asked(graph) if id_ not in ids and digest in wanted}
    return sorted(wanted)


def _asked(graph: HomeGraph) -> Iterator[tuple[str, str]]:
    """(id of a document, digest of a request) of all stages that asked and whose files are there."""
    for label, stage in sorted(graph.stages.items()):
        if "answers" in stage.result and label not in graph.collected:
            for path, column in _tables(stage):
                for table in parquet.groups(path, ["id", column]):
                    for id_, digests in zip(table["id"].to_pylist(), table[column].to_pylist(), strict=True):
                        yield from ((id_, digest) for digest in (digests or "").split(",") if digest)


def _tables(stage: FinishedStage) -> Iterator[tuple[str, str]]:
    """The tables of a stage with digests, each with their column."""
    folder = asked_folder(stage.folder)
    if asked := files.names(folder):
        yield from ((files.join(folder, name), ANSWER) for name in asked)
    else:
        yield from ((part, f"{stage.name}_answer") for part in stage.parts)

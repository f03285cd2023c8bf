"""The job that turns the answers about a shard of documents into rewrites, each with the document that it is from."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files, layout, ledger, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.storage.schema import DOCUMENTS
from gristmill.tasks.documents.step import UNKNOWN
from gristmill.tasks.language_model.answers import Answer, AnswerStore
from gristmill.tasks.language_model.ask import replay
from gristmill.tasks.language_model.questions import sampled_documents
from gristmill.tasks.language_model.rewriting import (
    RewriteRecord,
    SingleRequest,
    new_names,
    new_numbers,
    ratio,
    refused,
)
from gristmill.tasks.language_model.sample import thresholds_of
from gristmill.tasks.models.language import Identification, identified

STEP = "rewrite"
ANSWER = "answer"  # a column of the tables below `asked_folder`: the digest of the request
ASKED = pa.schema([pa.field("id", pa.string()), pa.field(ANSWER, pa.string())])
_OF_SOURCE = ("url", "date", "source", "file", "offset", "length", "record_id")  # columns of the document
# Columns that documents of a rewrite carry: where they come from, and what is measured of them.
CARRIED = pa.schema(
    [
        pa.field("derived_from", pa.string(), metadata={"what": "id of the document that this one was rewritten from"}),
        pa.field("derived_source", pa.string(), metadata={"what": "source of that document"}),
        pa.field("derived_record", pa.string(), metadata={"what": "id of its record"}),
        pa.field("rewrite_prompt", pa.string(), metadata={"what": "the prompt's name, or a digest of its templates"}),
        pa.field("rewrite_model", pa.string(), metadata={"what": "the model that answered, as the server names it"}),
        pa.field("rewrite_answer", pa.string(), metadata={"what": "digest of the request, which names the answer"}),
        pa.field("rewrite_ratio", pa.float64(), metadata={"what": "characters per character of the document"}),
        pa.field("rewrite_new_numbers", pa.int64(), metadata={"what": "numbers that the document does not have"}),
        pa.field("rewrite_new_names", pa.int64(), metadata={"what": "capitalized words that the document lacks"}),
    ]
)
# A part of the stage: `id` is that of the document.
PART = pa.schema(
    [
        DOCUMENTS.field("id"),
        DOCUMENTS.field("text"),
        DOCUMENTS.field("characters"),
        *(DOCUMENTS.field(name) for name in ("url", "date", "file", "offset", "length")),
        *CARRIED,
    ]
)


def asked_folder(folder: str) -> str:
    """The folder with a table for each shard: the ids of the documents that were asked about, and the digests of the
    requests, also of those whose answers are no rewrites."""
    return files.join(folder, "asked")


def _asked_part(folder: str, shard: int) -> str:
    return files.join(asked_folder(folder), f"asked-{shard:05d}.parquet")


def answer_about(home: str, folder: str, shard: int, document: str) -> Answer | None:
    """What the model answered about a document of a shard, also if that is no rewrite. None if the home does not have
    it any more. `folder`: of the stage."""
    asked = parquet.read_table(_asked_part(folder, shard))
    digests = asked.filter(pc.equal(asked["id"], document))[ANSWER].to_pylist()
    return AnswerStore(home).find(digests[0]) if digests else None


def rewrite_shard(
    folder: str,
    shard: int,
    documents: str,
    kept: str,
    signals: tuple[str, ...],
    home: str,
    asked: RewriteRecord,
    sample: tuple[RecordedFile, ...],
) -> dict:
    """Write the rewrites of a shard from the answers in the home, and the ledger of documents without one. Holds the
    rewrites, and the texts of a row group. Returns counts."""
    store = AnswerStore(home)
    asked_about: dict[str, str] = {}
    rows: dict[str, dict[str, Any]] = {}
    drops: list[dict[str, Any]] = []
    expected: dict[str, str | None] = {}
    for each, text, values in sampled_documents(asked, thresholds_of(sample), documents, kept, signals):
        if text is None:
            continue
        source = text[: asked.settings.characters]
        [conversation] = asked.conversations(text, values)
        replay(store, conversation, folder)
        answer, asked_about[each] = _answer(conversation), conversation.digest
        if (why := refused(asked, source, answer)) is not None:
            drops.append({"id": each, "step": STEP, **vars(why)})
            continue
        rows[each] = _row(source, answer, conversation.digest, asked.name)
        expected[each] = values.get("language") if asked.of_source else asked.checks.language
    if asked.identify is not None:
        for drop in _other_languages(asked.identify, rows, expected):
            drops.append(drop)
            del rows[drop["id"]]
    table = parquet.read_table(documents, ["id", *_OF_SOURCE])
    table = table.filter(pc.is_in(table["id"], pa.array(list(rows), pa.string()))).rename_columns(
        ["id", "url", "date", "derived_source", "file", "offset", "length", "derived_record"]
    )
    found = pa.Table.from_pylist(
        [{**row, "derived_from": row["id"], **rows[row["id"]]} for row in table.to_pylist()], schema=PART
    )
    parquet.write_table(layout.part(folder, shard), found)
    digests = {
        "id": pa.array(list(asked_about), pa.string()),
        ANSWER: pa.array(list(asked_about.values()), pa.string()),
    }
    parquet.write_table(_asked_part(folder, shard), pa.table(digests))
    dropped = ledger.from_rows(drops)
    ledger.write_ledger(folder, shard, dropped)
    characters = pc.sum(found["characters"]).as_py() or 0
    return {
        "rows_in": len(asked_about),
        "rows_out": len(found),
        "steps": [ledger.count(STEP, len(asked_about), None, dropped, characters)],
    }


def _answer(conversation: SingleRequest) -> Answer:
    assert conversation.answer is not None, "it was replayed"
    return conversation.answer


def _row(source: str, answer: Answer, digest: str, prompt: str) -> dict[str, Any]:
    text = answer.content.strip()
    return {
        "text": text,
        "characters": len(text),
        "rewrite_prompt": prompt,
        "rewrite_model": answer.model,
        "rewrite_answer": digest,
        "rewrite_ratio": ratio(source, text),
        "rewrite_new_numbers": new_numbers(source, text),
        "rewrite_new_names": new_names(source, text),
    }


def _other_languages(
    identify: Identification, rows: dict[str, dict[str, Any]], expected: dict[str, str | None]
) -> list[dict[str, Any]]:
    """The ledger's rows of rewrites in another language than they must have. An unknown one is none."""
    ids = [each for each in rows if expected[each] not in (None, UNKNOWN)]
    labels, _ = identified(identify, pa.array([rows[each]["text"] for each in ids], pa.large_string()))
    return [
        {"id": each, "step": STEP, "rule": "language", "detail": f"{label}, not {expected[each]}"}
        for each, label in zip(ids, labels, strict=True)
        if label not in (expected[each], UNKNOWN)
    ]

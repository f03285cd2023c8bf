"""Ask a server about texts as the step `annotate` does, in this process, without a corpus."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from gristmill.flows.curation import curate
from gristmill.flows.recipe.recipe import load
from gristmill.storage import parquet
from gristmill.tasks.engine import options
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.options import LanguageModelServer
from gristmill.tasks.language_model.annotate import AnnotationConversation, AnnotationSettings
from gristmill.tasks.language_model.answers import FOLDER, AnswerStore
from gristmill.tasks.language_model.ask import ask_all, replay
from tests.corpora import context
from tests.language_model.serving import Served

PROMPT = {
    "system": "You grade texts.",
    "user": "Grade this text from 0 to 5.\n{{ document }}",
    "answer": {"grade": {"type": "integer", "minimum": 0, "maximum": 5}, "reason": {"type": "string"}},
}
SETTINGS = AnnotationSettings(model="planted", prompt=PROMPT)
TEMPLATE = "0" * 64  # the digest of one


@contextmanager
def limits(server: Served | str, **settings: Any) -> Iterator[None]:
    """The server, or the one at an address, is that of this process within the block."""
    before = options.current()
    base_url = server if isinstance(server, str) else server.base_url
    lm = LanguageModelServer(base_url=base_url, **{"concurrency": 8, **settings})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRISTMILL_SECRET_LM", getattr(server, "key", "test-key"))
        options.configure(replace(before, lm=lm))
        try:
            yield
        finally:
            options.configure(before)


def texts(count: int) -> list[str]:
    """Texts that differ, with the marks that the planted model reads."""
    return [f"document=t{number} quality={number % 6}\nThe mill grinds {number} sacks." for number in range(count)]


def ask(home: Path, asked: list[str], settings: AnnotationSettings = SETTINGS) -> dict:
    """Ask about texts. Returns counts of requests."""
    return asked_about(home, asked, settings)["attempts"]


def asked_about(home: Path, asked: list[str], settings: AnnotationSettings = SETTINGS) -> dict:
    """As `ask`, with the bill."""

    def items() -> Iterator[tuple[int, list[AnnotationConversation]]]:
        return ((len(text), settings.conversations(text, {})) for text in asked)

    return ask_all("annotate", str(home), TEMPLATE, items)


@dataclass(frozen=True)
class Replayed:
    """What the answers in a home say about a text."""

    values: dict[str, Any] | None
    problem: str
    digests: tuple[str, ...]


def replayed(home: Path, asked: list[str], settings: AnnotationSettings = SETTINGS) -> list[Replayed]:
    """The end of each conversation, from the answers in the home."""
    ends = []
    for text in asked:
        (conversation,) = settings.conversations(text, {})
        replay(AnswerStore(str(home)), conversation, "the stage")
        ends.append(Replayed(conversation.values, conversation.problem, tuple(conversation.digests)))
    return ends


def stored(home: Path) -> dict[str, dict]:
    """All answers of a home by their digest, read without the product."""
    found = {}
    for path in (home / FOLDER).glob("[0-9a-f][0-9a-f]/*.json"):
        _, _, body = path.read_bytes().partition(b"\n")
        found[path.stem] = orjson.loads(body)
    return found


def first_request(text: str, settings: AnnotationSettings = SETTINGS) -> str:
    """The digest of the first request about a text."""
    request = settings.conversations(text, {})[0].request
    assert request is not None
    return request.digest


def conversation(text: str, settings: AnnotationSettings = SETTINGS) -> AnnotationConversation:
    return settings.conversations(text, {})[0]


# Whole stages


def recipe(folder: Path, sources: dict[str, list[dict]], **step: Any) -> dict:
    """A recipe over rows of sources, ten to a file, whose last step is `annotate`."""
    given = []
    for name, rows in sources.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for part in range(0, len(rows), 10):
            lines = b"\n".join(orjson.dumps(row) for row in rows[part : part + 10])
            (folder / name / f"{part:05}.jsonl").write_bytes(lines + b"\n")
        given.append({"name": name, "jsonl": [f"{folder / name}/*.jsonl"], "shard_bytes": 1})
    return {
        "name": "lm",
        "sources": given,
        "steps": [
            {"step": "extract", "engine": "plain"},
            {"step": "annotate", "model": "planted", "prompt": PROMPT, **step},
        ],
    }


def made(home: Path, recipe: dict) -> dict[str, StageResult]:
    """The stages of a corpus by their names, made in this process."""
    *_, last = curate(context(str(home)), load(recipe))
    return {stage.name: stage for stage in last.left.stages}


def rows(stage: StageResult, *columns: str) -> list[dict]:
    """The rows of all parts of a stage."""
    found: list[dict] = []
    for path in sorted(Path(stage.folder).glob("part-*.parquet")):
        found += parquet.read_table(str(path), list(columns) or None).to_pylist()
    return found


def parts(stage: StageResult) -> list[bytes]:
    """The bytes of all parts of a stage."""
    return [path.read_bytes() for path in sorted(Path(stage.folder).glob("part-*.parquet"))]

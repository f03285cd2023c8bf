"""Rows of steps that ask a language model: the home has all answers, so no server is asked. Separate: they write
these answers."""

import json

from gristmill.flows.stages.corpus import Corpus
from gristmill.tasks.documents.selection import select
from gristmill.tasks.language_model.annotate import Annotate, AnnotationConversation
from gristmill.tasks.language_model.answers import Answer, AnswerStore
from gristmill.tasks.language_model.rewrite import Checks, Rewrite, RewriteRecord, RewriteSettings, SingleRequest
from tests.golden.rows.row import COPIES, EDGES, WEB, Row, Settings, placed, recipe
from tests.golden.run import Golden

PROMPT: Settings = {
    "system": "You grade texts.",
    "user": "{{ url }} from {{ source }}: {{ document }}",
    "answer": {
        "grade": {"type": "integer", "minimum": 0, "maximum": 5},
        "share": {"type": "number"},
        "good": {"type": "boolean"},
        "kind": {"type": "string", "enum": ["a", "b"]},
    },
}
# An answer that is valid, in a fence, of another form, cut, refused, with another property, or filtered, by turns.
VALID = {"grade": 3, "share": 0.25, "good": True, "kind": "a"}
CONTENTS = (
    (json.dumps(VALID), "stop"),
    (f"Here it is:\n```json\n{json.dumps(VALID | {'grade': 5, 'kind': 'b'})}\n```", "stop"),
    (json.dumps(VALID | {"grade": 9}), "stop"),
    (json.dumps(VALID)[:20], "length"),
    ("I cannot grade this.", "refusal"),
    (json.dumps(VALID | {"more": 1}), "stop"),
    ("", "content_filter"),
)


def _planted(golden: Golden, given: Settings) -> None:
    """Make the corpus of a recipe whose last step is `annotate`, after the answers to all that it asks."""
    whole = placed(given, golden)
    *steps, last = whole["steps"]
    step, store = Annotate.model_validate(last), AnswerStore(golden.home)
    _, corpus = golden.curated({**whole, "steps": steps})
    for shard in range(len(corpus.sources)):
        table = load_columns(corpus, shard, ["text", *step.reads])
        for values in table:
            for conversation in step.conversations(values["text"], values):
                _answer(store, conversation)
    golden.curated(whole)


def _answer(store: AnswerStore, conversation: AnnotationConversation) -> None:
    while (request := conversation.request) is not None:
        number = int(request.digest[:8], 16)
        content, finish = CONTENTS[number % len(CONTENTS)]
        tokens = None if number % 5 == 0 else number % 100
        answer = Answer(content, f"model-{number % 2}", finish, tokens, tokens)
        conversation.take(store.keep(request.digest, answer))


def load_columns(corpus: Corpus, shard: int, columns: list[str]) -> list[dict]:
    """The chosen columns of the documents of a shard that are kept."""
    return select(corpus.documents.part(shard), corpus.kept.part(shard), columns).to_pylist()


def _row(name: str, sources: list[Settings], covers: tuple[str, ...] = (), **settings) -> Row:
    step = {"step": "annotate", "model": "planted", "prompt": PROMPT, **settings}
    given = recipe(sources, [step])
    return Row(name, ("annotate", *covers), lambda golden: _planted(golden, given), json.dumps(given, sort_keys=True))


def _rewritten(golden: Golden, given: Settings, other: Settings) -> None:
    """Make the corpus of a recipe with rewrites of another one, after the answers to all that they ask."""
    (source,) = given["sources"]
    path = golden.fixture / f"{other['name']}.json"
    path.write_text(json.dumps(placed(other, golden)), encoding="utf-8")
    rewrite = {**source["rewrite"], "recipe": str(path)}
    settings, store = Rewrite.model_validate(rewrite), AnswerStore(golden.home)
    asked = RewriteRecord(
        settings=settings.part(RewriteSettings),
        name="",
        checks=settings.part(Checks),
        by=(),
        seed=0,
        of_source=False,
        identify=None,
    )
    _, corpus = golden.curated(placed(other, golden))
    for shard in range(len(corpus.sources)):
        for values in load_columns(corpus, shard, ["text", *asked.reads]):
            for conversation in asked.conversations(values["text"], values):
                _rewrite(store, conversation, values["text"])
    golden.curated({**given, "sources": [{**source, "rewrite": rewrite}]})


def _rewrite(store: AnswerStore, conversation: SingleRequest, text: str) -> None:
    """Keep an answer: the words in reverse, with a number and a name; cut, refused or too short by turns."""
    number = int(conversation.digest[:8], 16)
    written = f"So said Xantippe {number % 1000}: {' '.join(reversed(text.split()[:400]))}"
    contents = ((written, "stop"), (written, "stop"), (written, "length"), ("No.", "stop"), ("I cannot.", "refusal"))
    content, finish = contents[number % len(contents)]
    store.keep(conversation.digest, Answer(content, "model", finish, 10, 10))


def _rewrite_row(name: str, covers: tuple[str, ...], sources: list[Settings], steps: list[Settings], **more) -> Row:
    rewrite = {"model": "planted", "prompt": {"user": "Write it again: {{ document }}"}, **more}
    given = recipe([{"name": "again", "rewrite": rewrite}], [{"step": "where", "keep": "rewrite_new_names > 0"}])
    other = recipe(sources, steps) | {"name": name}
    settings = json.dumps([given, other], sort_keys=True)
    return Row(name, ("rewrites", *covers), lambda golden: _rewritten(golden, given, other), settings)


ROWS = (
    _rewrite_row("rewrites", (), [EDGES], []),
    _rewrite_row(
        "rewrites-sample",
        ("rewrites_sample",),
        [EDGES, WEB],
        [{"step": "language", "min_score": 0}],
        of=40,
        by=["language"],
        seed=5,
        prompt={"user": "{{ tone }} {{ url }} {{ document }}"},
        values={"tone": "Plainly:"},
        characters=300,
        max_ratio=2,
        prompt_words=None,
        min_characters=10,
        options={"top_p": 0.9},
    ),
    _rewrite_row("rewrites-few", ("rewrites_sample",), [EDGES], [], of=12),
    _row("annotate", [EDGES]),
    _row("annotate-dropped", [EDGES], ("annotate_sample", "annotate_cut"), of=12, failed="drop", repairs=0),
    _row("annotate-numbers", [COPIES], ("annotate_sample",), of=12, by=["score"]),
    _row("annotate-bounds", [EDGES], ("annotate_sample",), of=12, by=["characters"], bounds={"characters": [40, 90]}),
    _row(
        "annotate-sample",
        [EDGES, WEB],
        ("annotate_sample", "annotate_cut"),
        of=20,
        by=["source", "characters"],
        seed=3,
        failed="drop",
        repairs=1,
        characters=50,
        windows=3,
        temperature=0.5,
        max_tokens=100,
        structured=False,
        options={"top_p": 0.9},
    ),
)

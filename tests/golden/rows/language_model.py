"""Rows of steps that ask a language model: the home has all answers, so no server is asked. Separate: they write
these answers."""

import json

from gristmill.flows.stages.corpus import Corpus
from gristmill.tasks.documents.selection import select
from gristmill.tasks.language_model.annotate import Annotate, Conversation
from gristmill.tasks.language_model.answers import Answer, AnswerStore
from tests.golden.rows.row import EDGES, WEB, Row, Settings, placed, recipe
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


def _answer(store: AnswerStore, conversation: Conversation) -> None:
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


ROWS = (
    _row("annotate", [EDGES]),
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

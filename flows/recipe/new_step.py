"""`gristmill recipe new-step`: writes a template for a custom step, and its test."""

import re
from pathlib import Path
from string import Template

from gristmill.flows.recipe.steps import BUILT_IN

_STEP = Template('''"""The step `$name`: drops documents in which certain words occur too often.

A recipe names it as `- {step: $module:$Class, max_hits: 3}` where GRISTMILL_STEPS=$module is set and this folder is on
the PYTHONPATH. An installed package needs neither: its pyproject.toml has an entry point of the group `gristmill.steps`
called `$name`, with the value `$module:$Class`, and recipes write `- {step: $name, max_hits: 3}`.
"""

from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.step import Bound, DocumentStep, Signal


class $Class(DocumentStep):
    """Drop documents in which the words occur more than `max_hits` times, ignoring case."""

    step: Literal["$name"] = "$name"
    words: tuple[str, ...] = Field(("lorem", "ipsum"), min_length=1, description="Words to count, in lowercase.")
    max_hits: int | None = Field(3, ge=0, description="Maximum hits of a kept document; null: no limit.")

    # the columns that `measure` returns
    signals: ClassVar = (
        Signal("${name}_hits", "int64", "words", "$module.py", description="How often the words occur in the text."),
    )
    # the settings that change what is measured; all others are thresholds, which `gristmill decide whatif` can replay
    signal_fields: ClassVar = ("words",)

    def decisions(self) -> list[Bound]:
        return [Bound("hits", "${name}_hits", high=self.max_hits)]


def measure(step: $Class, documents: Batch) -> dict[str, pa.Array]:
    """A column for each signal, with a value for each document. No threshold of the step may be read here."""
    texts = documents["text"].to_pylist()
    hits = [sum(word in step.words for word in text.lower().split()) for text in texts]
    return {"${name}_hits": pa.array(hits, pa.int64())}
''')

_TEST = Template('''"""The step `$name`: counts, drops and use in a recipe."""

import pyarrow as pa
from $module import $Class

from gristmill.flows.recipe.recipe import load
from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.documents.measure import measured

TEXTS = {"none": "The mill stands by the river.", "one": "Lorem est.", "many": "lorem ipsum dolor LOREM Ipsum"}


def test_documents_with_too_many_hits_are_dropped():
    documents = pa.table({"id": list(TEXTS), "text": pa.array(TEXTS.values(), pa.large_string())})
    step = $Class(max_hits=1)
    table = measured(documents, [step.measuring()]).table
    assert table["${name}_hits"].to_pylist() == [0, 1, 4]
    [(name, dropped)] = decide(table, [(step.step, step.decisions())])
    assert name == "$name"
    assert dropped.select(["id", "rule", "value", "threshold"]).to_pylist() == [
        {"id": "many", "rule": "hits", "value": 4, "threshold": 1}
    ]


def test_a_recipe_names_it_where_the_machine_allows_it(monkeypatch):
    monkeypatch.setenv("GRISTMILL_STEPS", "$module")
    given = {
        "name": "own",
        "sources": [{"name": "web", "jsonl": ["web.jsonl"]}],
        "steps": [{"step": "extract"}, {"step": "$module:$Class", "max_hits": 1}],
        "mixture": {"weights": {"web": 1}},
    }
    assert load(given).steps[1] == $Class(max_hits=1)
''')


def write(name: str, folder: str | Path) -> list[Path]:
    """Write `<name>_step.py`, a document step, and `test_<name>_step.py` into a folder, and return their paths.

    Raises ValueError for an invalid name, FileExistsError if a file exists.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(f"{name!r} is not a valid step name: use a to z, 0 to 9 and _, and begin with a letter")
    if name in BUILT_IN:
        raise ValueError(f"{name} is a built-in step: choose another name")
    module = f"{name}_step"
    words = {"name": name, "module": module, "Class": "".join(part.capitalize() for part in name.split("_"))}
    texts = {Path(folder, f"{module}.py"): _STEP, Path(folder, f"test_{module}.py"): _TEST}
    if there := [str(path) for path in texts if path.exists()]:
        raise FileExistsError(f"{', '.join(there)} exists: choose another name or folder")
    Path(folder).mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(text.substitute(words), encoding="utf-8")
    return list(texts)

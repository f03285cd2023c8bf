"""Tasks that a model is scored on: files of JSON Lines, ours or as benchmarks publish them.

Each example is a few pairs of context and continuation, one of which is right (multiple choice), or one pair whose
continuation the model must write (cloze, as LAMBADA). A layout is known by its fields, not by the name of a file.

Formats of prompts: our own and MosaicML's files are used as they are; the others have those of EleutherAI's
lm-evaluation-harness (lm_eval/tasks/{arc,piqa,hellaswag,winogrande,super_glue/boolq}), without examples in the prompt.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Literal

import orjson

PREFIX = "lm-eval:"
_OFFLINE = ("HF_DATASETS_OFFLINE", "HF_HUB_OFFLINE")


def write_lm_eval_tasks(names: Sequence[str], folder: Path) -> Path:
    """Write each task as `<name>.jsonl`: every example of its test set, or of its validation set, without examples in
    the prompt. Returns the folder.

    Nothing is fetched: a data set that is in no local cache raises FileNotFoundError with a remedy. Raises ValueError
    where lm_eval is not installed, or a task is unknown, or no multiple choice.
    """
    os.environ.update(dict.fromkeys(_OFFLINE, "1"))  # before the import, which reads them
    try:
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        raise ValueError(
            f"--tasks {PREFIX}{','.join(names)} needs lm-evaluation-harness: pip install lm-eval, or give a "
            f"folder of tasks ({error})"
        ) from None
    manager = TaskManager()
    for name in names:
        if name not in manager.all_subtasks:
            raise ValueError(f"lm-eval has no task {name}; `lm_eval ls tasks` lists them, and groups are not supported")
        folder.mkdir(parents=True, exist_ok=True)
        lines = b"".join(orjson.dumps(row) + b"\n" for row in _rows(name, _load(manager, name)))
        temporary = folder / f".{name}.tmp"
        temporary.write_bytes(lines)
        temporary.replace(folder / f"{name}.jsonl")
    return folder


def _load(manager: Any, name: str) -> Any:
    try:
        return manager.load_task_or_group([name])[name]
    except (ConnectionError, FileNotFoundError, OSError) as error:
        raise FileNotFoundError(
            f"the data set of lm-eval's task {name} is not in a local cache ({error}): run `lm_eval run "
            f"--model dummy --tasks {name}` once with network access"
        ) from None


def _rows(name: str, task: Any) -> list[dict[str, Any]]:
    if task.OUTPUT_TYPE != "multiple_choice":
        raise ValueError(f"lm-eval's task {name} is {task.OUTPUT_TYPE}; use one that is multiple_choice")
    documents = task.test_docs() if task.has_test_docs() else task.validation_docs()
    rows = []
    for document in documents:
        prompt = task.fewshot_context(document, num_fewshot=0)
        requests = task.construct_requests(document, prompt)
        # scoring adds a space between the two, which is not part of the answer
        pairs = [(context, text.removeprefix(" ")) for context, text in (request.args[:2] for request in requests)]
        answer = _answer(name, task, document)
        if task.multiple_input:
            rows.append(
                {"context_options": [context for context, _ in pairs], "continuation": pairs[0][1], "gold": answer}
            )
        else:
            choices = [text for _, text in pairs[: len(task.doc_to_choice(document))]]
            rows.append({"context": pairs[0][0], "choices": choices, "answer": answer})
    return rows


def _answer(name: str, task: Any, document: Any) -> int:
    """The number of the right choice."""
    answer = task.doc_to_text(document) if task.multiple_input else task.doc_to_target(document)
    if isinstance(answer, str):
        answer = task.doc_to_choice(document).index(answer)
    if isinstance(answer, bool) or not isinstance(answer, int):
        raise ValueError(
            f"lm-eval's task {name} has {answer!r} as the right answer of an example; use a task with one right answer"
        )
    return answer


LETTERS = ":letters"  # the end of the name of a task whose answers are letters


@dataclass(frozen=True)
class Example:
    """`pairs`: (context, continuation); `answer`: the index of the right one."""

    pairs: tuple[tuple[str, str], ...]
    answer: int = 0


@dataclass(frozen=True)
class Task:
    """`name`: the file's, without its suffix."""

    name: str
    kind: Literal["choice", "cloze"]
    examples: tuple[Example, ...]


def lettered(task: Task) -> Task | None:
    """The task with its choices in the context, whose answers are letters, as OLMES words it (Gu et al. 2024, appendix
    A); its name ends in LETTERS. None for a task without choices, one whose choices are contexts, and one of more
    choices than there are letters."""
    if task.kind != "choice":
        return None
    examples = []
    for example in task.examples:
        contexts = {context for context, _ in example.pairs}
        if len(contexts) > 1 or len(example.pairs) > len(ascii_uppercase):
            return None
        question = contexts.pop().removesuffix("Answer:").rstrip()
        letters = ascii_uppercase[: len(example.pairs)]
        choice_lines = [
            f" {letter}. {choice.strip()}" for letter, (_, choice) in zip(letters, example.pairs, strict=True)
        ]
        context = "\n".join([*([question] if question else []), *choice_lines, "Answer:"])
        examples.append(Example(tuple((context, letter) for letter in letters), example.answer))
    return Task(f"{task.name}{LETTERS}", "choice", tuple(examples))


class UnknownLayoutError(ValueError):
    """A file of JSON Lines whose fields are of no known task."""


def read_tasks(folder: Path) -> tuple[list[Task], list[str]]:
    """The tasks of all `*.jsonl` files of a folder by name, and a sentence for each file that is not a known task.

    Raises FileNotFoundError for a folder without such files, ValueError where none of them is a task, or a line of a
    task cannot be used.
    """
    paths = sorted(Path(folder).glob("*.jsonl"))
    if not paths:
        raise FileNotFoundError(f"{folder} has no *.jsonl file: give a folder with one file per task")
    tasks, others = [], []
    for path in paths:
        try:
            tasks.append(read_task(path))
        except UnknownLayoutError as error:
            others.append(str(error))
    if not tasks:
        raise ValueError(f"{folder} has no known task: {'; '.join(others)}")
    return tasks, others


def read_task(path: Path) -> Task:
    """The task in a file. Raises UnknownLayoutError by its first line, ValueError for a line that cannot be used."""
    examples: list[Example] = []
    task_layout: _Layout | None = None
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise ValueError(f"{path}:{number}: is not valid JSON ({error}); fix or remove the line") from None
            if task_layout is None:
                task_layout = _layout(path, row)
            examples.append(_example(task_layout, row, f"{path}:{number}"))
    if task_layout is None:
        raise UnknownLayoutError(f"{path.name} is empty")
    return Task(path.stem, task_layout.kind, tuple(examples))


def _example(layout: _Layout, row: Any, where: str) -> Example:
    try:
        example = layout.read(row)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ValueError(
            f"{where}: cannot be read as {layout.fields} ({type(error).__name__}: {error}); fix or remove the line"
        ) from None
    if not 0 <= example.answer < len(example.pairs):
        raise ValueError(
            f"{where}: the right answer is number {example.answer} of {len(example.pairs)}, from 0; give one of them, "
            "or a set whose answers are published"
        )
    if any(not continuation.strip() for _, continuation in example.pairs):
        raise ValueError(f"{where}: a choice is empty; fix or remove the line")
    return example


@dataclass(frozen=True)
class _Layout:
    """`fields`: those that a row has, by which the layout is known."""

    fields: tuple[str, ...]
    kind: Literal["choice", "cloze"]
    read: Callable[[dict[str, Any]], Example]


def _choices(context: str, choices: list[str], answer: int) -> Example:
    if isinstance(answer, bool) or not isinstance(answer, int):
        raise ValueError(f"the answer is {answer!r}, which is not a number of a choice")
    return Example(tuple((context, choice) for choice in choices), answer)


def _ours(row: dict[str, Any]) -> Example:
    return _choices(row["context"], row["choices"], row["answer"])


def _mosaic(row: dict[str, Any]) -> Example:
    """A question gets the line `Answer:`, as their settings of ARC, PIQA and BoolQ add it; other queries end as they
    are (llm-foundry, scripts/eval/yamls/tasks.yaml)."""
    query = row["query"].strip()
    asks = re.search(r"^(Question|Passage):", query, re.MULTILINE) and not query.endswith("Answer:")
    return _choices(f"{query}\nAnswer:" if asks else query, row["choices"], row["gold"])


def _mosaic_schema(row: dict[str, Any]) -> Example:
    return Example(tuple((context, row["continuation"]) for context in row["context_options"]), row["gold"])


def _arc(row: dict[str, Any]) -> Example:
    labels = row["choices"]["label"]
    return _choices(f"Question: {row['question']}\nAnswer:", row["choices"]["text"], labels.index(row["answerKey"]))


def _piqa(row: dict[str, Any]) -> Example:
    return _choices(f"Question: {row['goal']}\nAnswer:", [row["sol1"], row["sol2"]], row["label"])


def _hellaswag(row: dict[str, Any]) -> Example:
    def plain(text: str) -> str:
        text = text.strip().replace(" [title]", ". ")
        return re.sub(r"\[.*?\]", "", text).replace("  ", " ")

    context = f"{row['activity_label']}: {row['ctx_a']} {row['ctx_b'].capitalize()}"
    return _choices(plain(context), [plain(ending) for ending in row["endings"]], int(row["label"]))


def _winogrande(row: dict[str, Any]) -> Example:
    before, after = row["sentence"].split("_")
    return Example(
        tuple((before + row[name], after.strip()) for name in ("option1", "option2")), int(row["answer"]) - 1
    )


def _boolq(row: dict[str, Any]) -> Example:
    if not isinstance(row["answer"], bool):
        raise ValueError(f"the answer is {row['answer']!r}, neither true nor false")
    return _choices(f"{row['passage']}\nQuestion: {row['question']}?\nAnswer:", ["no", "yes"], int(row["answer"]))


def _cloze(field: str) -> Callable[[dict[str, Any]], Example]:
    return lambda row: Example(((row["context"], row[field]),))


_LAYOUTS = (
    _Layout(("context", "choices", "answer"), "choice", _ours),
    _Layout(("context", "target"), "cloze", _cloze("target")),
    _Layout(("query", "choices", "gold"), "choice", _mosaic),
    _Layout(("context_options", "continuation", "gold"), "choice", _mosaic_schema),
    _Layout(("context", "continuation"), "cloze", _cloze("continuation")),
    _Layout(("question", "choices", "answerKey"), "choice", _arc),
    _Layout(("goal", "sol1", "sol2", "label"), "choice", _piqa),
    _Layout(("activity_label", "ctx_a", "ctx_b", "endings", "label"), "choice", _hellaswag),
    _Layout(("sentence", "option1", "option2", "answer"), "choice", _winogrande),
    _Layout(("question", "passage", "answer"), "choice", _boolq),
)


def _layout(path: Path, row: Any) -> _Layout:
    names = set(row) if isinstance(row, dict) else set()
    for layout in _LAYOUTS:
        if names.issuperset(layout.fields):
            return layout
    raise UnknownLayoutError(
        f"{path.name} is not a known task: its fields are {', '.join(sorted(names)) or 'none'}; give `context`, "
        "`choices` and `answer`, or `context` and `target`"
    )

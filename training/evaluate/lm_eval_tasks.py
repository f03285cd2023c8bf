"""Tasks of EleutherAI's lm-evaluation-harness, where the environment has it: its multiple choice, from a local cache.

The package is no dependency. Its prompts and data sets become a folder of files as `read_tasks` takes it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

PREFIX = "lm-eval:"
_OFFLINE = ("HF_DATASETS_OFFLINE", "HF_HUB_OFFLINE")


def write_lm_eval_tasks(names: Sequence[str], folder: Path) -> Path:
    """Write each task as `<name>.jsonl`: every example of its test set, or of its validation set, without examples in
    the prompt. Returns the folder.

    Nothing is fetched: a data set that is in no local cache raises FileNotFoundError with a remedy. Raises ValueError
    where lm_eval is not installed, or a task is unknown, or no multiple choice.
    """
    os.environ.update(dict.fromkeys(_OFFLINE, "1"))  # ahead of the import, which reads them
    try:
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        raise ValueError(
            f"--tasks {PREFIX}{','.join(names)} needs lm-evaluation-harness: pip install lm-eval, or name a folder of "
            f"tasks ({error})"
        ) from None
    manager = TaskManager()
    for name in names:
        if name not in manager.all_subtasks:
            raise ValueError(f"lm-eval has no task {name}; `lm_eval ls tasks` lists them, groups are not read")
        folder.mkdir(parents=True, exist_ok=True)
        lines = b"".join(orjson.dumps(row) + b"\n" for row in _rows(name, _load(manager, name)))
        written = folder / f".{name}.tmp"
        written.write_bytes(lines)
        written.replace(folder / f"{name}.jsonl")
    return folder


def _load(manager: Any, name: str) -> Any:
    try:
        return manager.load_task_or_group([name])[name]
    except (ConnectionError, FileNotFoundError, OSError) as error:
        raise FileNotFoundError(
            f"the data set of lm-eval's task {name} is in no local cache ({error}): run `lm_eval run --model dummy "
            f"--tasks {name}` once where there is a network"
        ) from None


def _rows(name: str, task: Any) -> list[dict[str, Any]]:
    if task.OUTPUT_TYPE != "multiple_choice":
        raise ValueError(f"lm-eval's task {name} is {task.OUTPUT_TYPE}; name one of multiple_choice")
    documents = task.test_docs() if task.has_test_docs() else task.validation_docs()
    rows = []
    for document in documents:
        asked = task.fewshot_context(document, num_fewshot=0)
        requests = task.construct_requests(document, asked)
        # a space between the two is put there by scoring, and is no part of the answer
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
    found = task.doc_to_text(document) if task.multiple_input else task.doc_to_target(document)
    if isinstance(found, str):
        found = task.doc_to_choice(document).index(found)
    if isinstance(found, bool) or not isinstance(found, int):
        raise ValueError(f"lm-eval's task {name} has {found!r} as the right answer of an example; name one with one")
    return found

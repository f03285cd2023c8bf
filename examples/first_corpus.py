"""A first corpus: what each step kept, what it dropped and why, and what another threshold would have done.

    .venv/bin/python examples/first_corpus.py FOLDER

It needs no network: the documents are the docstrings of Python's standard library, of which many say nearly the same,
since classes repeat what their parents say. Figures in comments are those of Python 3.11. A second run reuses what the
first has made.
"""

import inspect
import json
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pandas
import pyarrow

import gristmill

MODULES = """argparse asyncio base64 collections configparser csv datetime decimal email.message fractions functools
http.client inspect io ipaddress json logging mailbox multiprocessing.managers pathlib random shutil smtplib socket
statistics string subprocess tarfile tempfile textwrap threading unittest unittest.mock urllib.request uuid zipfile"""

RECIPE = """
name: first
sources:
  - {name: docstrings, jsonl: [docstrings.jsonl], url_column: url}
steps:
  - {step: extract}
  - {step: gopher_quality, min_words: 20, min_stop_words: 1}
  - {step: content_dedup}
  - {step: minhash, threshold: 0.7}
"""


def docstrings() -> Iterator[dict[str, str]]:
    """A document for each public class, function and method that has a docstring."""
    for name in MODULES.split():
        things = [(f"{name}.{key}", thing) for key, thing in inspect.getmembers(import_module(name))]
        classes = [(at, thing) for at, thing in things if inspect.isclass(thing)]
        things += [(f"{at}.{key}", member) for at, thing in classes for key, member in inspect.getmembers(thing)]
        for at, thing in things:
            text = inspect.getdoc(thing) if callable(thing) and "._" not in at else None
            if text:
                yield {"url": f"python:{at}", "text": text}


def make(folder: Path) -> Path:
    """The documents, and the recipe that is to be run on them, in the folder, which becomes the working directory: the
    home of all stages is `.gristmill` there."""
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    with Path("docstrings.jsonl").open("w") as out:
        out.writelines(json.dumps(document) + "\n" for document in docstrings())
    Path("recipe.yaml").write_text(RECIPE)
    return Path("recipe.yaml")


def main(folder: Path) -> None:
    recipe = make(folder)
    gristmill.corpus(recipe)  # a flow: stages are made, or found finished
    look_at(gristmill.open(recipe))  # makes nothing; `corpus` has returned the same


def look_at(run: gristmill.Run) -> None:
    print(run)  # <Run of first in .../home: 461 of 3,949 documents kept>
    show(run.funnel[["step", "documents_in", "documents_out", "reasons"]])

    # Rows are read when they are asked for: as a data frame, as a stream of Arrow's, as one of Hugging Face's datasets.
    kept = run.documents.to_pandas(["url", "cluster_size", "gopher_quality_words"])
    show(kept.sort_values("cluster_size", ascending=False).head(3))
    ledger = pyarrow.table(run.ledger).group_by(["step", "rule"]).aggregate([([], "count_all")])
    show(ledger.to_pandas())  # gopher_quality words 2230, content_dedup content 605, ...

    # One that was dropped: by which rule, what it is like, and the text that its file has.
    gone = run.dropped("minhash", n=1).iloc[0]
    show(run.decisions(gone["id"])[["stage", "kept", "rule", "value"]])
    show(run.similar(gone["id"])[["url", "jaccard", "kept"]])  # statistics.Decimal.copy_abs .708333 True
    print(run.lineage(gone["id"]).raw)  # Return the negation of the argument. ...

    # Another threshold, by the stored signals: 563 documents pass the rules in place of 1,072.
    show(run.whatif({"gopher_quality.min_words": 40}))


def show(frame: pandas.DataFrame) -> None:
    print(frame.to_string(index=False), end="\n\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

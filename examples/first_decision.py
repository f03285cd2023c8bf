"""A first decision: are a recipe's steps worth anything, and what is one threshold worth?

    .venv/bin/python examples/first_decision.py FOLDER

Beside the docstrings of first_corpus.py there is a second source: listings of Python's bytecode, which no model of
English needs. The rules of the recipe drop them. A decision trains small models on the tokens of each recipe and
compares their losses on documents that no recipe filtered, here docstrings. This one has a tiny proxy and few runs, so
that it takes a few minutes of two cores, and may not be able to tell: then it says so, and how many pairs would. The
proxy that ships (`small`, the default) trains a larger model on seven times the tokens, in more pairs.
"""

import dis
import inspect
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import yaml
from first_corpus import MODULES, make

import gristmill

PROXY = """
name: tiny
vocab_size: 512
model: {dim: 32, layers: 1, heads: 2, seq_len: 128, qk_norm: true}
tokens: 30000
training: {optimizer: muon, batch: 4, micro_batch: 4, warmup_steps: 6}
learning_rates: [0.005, 0.015]
looks: [3]
"""


def listings() -> Iterator[dict[str, str]]:
    """A document for each function of the modules."""
    for name in MODULES.split():
        for key, function in inspect.getmembers(import_module(name), inspect.isfunction):
            lines = (f"{each.offset} {each.opname} {each.argrepr}" for each in dis.get_instructions(function))
            text = "\n".join(line.partition(" at 0x")[0] for line in lines)  # addresses differ in each run
            yield {"url": f"bytecode:{name}.{key}", "text": text}


def main(folder: Path) -> None:
    recipe = yaml.safe_load(make(folder).read_text())
    with Path("listings.jsonl").open("w") as out:
        out.writelines(json.dumps(document) + "\n" for document in listings())
    recipe["sources"].append({"name": "listings", "jsonl": ["listings.jsonl"], "url_column": "url"})
    Path("decided.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
    Path("proxy.yaml").write_text(PROXY)
    report = gristmill.ablate(
        "decided.yaml",
        raw=True,  # a candidate: no step behind the extraction
        settings=["gopher_quality.min_words=10"],  # another: a threshold
        judge=["docstrings"],  # the source whose documents count
        proxy="proxy.yaml",
        bank_pairs=3,  # pairs of runs of one recipe, which say how much runs differ by chance
    )
    look_at(report)


def look_at(report: gristmill.DecisionReport) -> None:
    print(*report.sentences, sep="\n")
    print(report.table[["candidate", "outcome", "effect", "low", "high"]].to_string(index=False))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

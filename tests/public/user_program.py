"""What a user writes over the public interface. Mypy checks it as strictly as it can (pyproject.toml)."""

from pathlib import Path

import gristmill
from gristmill import AgreementReport, DecisionReport, Difference, Rows, Run, ScalingReport, TrainingPlan


def curate(recipe: str) -> Run:
    report = gristmill.corpus(recipe)
    for row in report.steps:
        print(row.step, row.documents_in, row.documents_out)
    return report


def look(recipe: str) -> list[str]:
    run = gristmill.open(recipe, home="home")
    documents: Rows = run.documents
    print(documents.to_pandas(["id", "url", "text"]).shape, run.corpus.rows, run.tokens)
    print(run.sql("select count(*) from documents").fetchall())
    for name, count in run.types.items():
        print(name, count)
    print(run.dropped("gopher_quality.min_words", n=5), run.lineage("ab12"), run.whatif({"c4.min_sentences": 2}))
    return run.summary


def search(recipe: str) -> int:
    index = gristmill.open_index(recipe)
    phrase = gristmill.find("olive oil", index)
    print(gristmill.trace("a long text", index))
    words = gristmill.open_words(recipe)
    print(gristmill.find_words("olive oil", words))
    return len(phrase.documents)


def compare(first: str, second: str) -> float:
    difference: Difference = gristmill.diff(first, second)
    decision: DecisionReport = gristmill.ablate(first, [second], clean="texts.jsonl", pairs=[4, 8])
    law: ScalingReport = gristmill.scale(first, [3_000_000], [30_000_000])
    order: AgreementReport = gristmill.agreement(first, sizes=[3, 15], tokens=[30, 150], against=[second])
    print(difference, decision, law, order, gristmill.mix(first, method="regmix", judge=["books"]))
    report = gristmill.pipeline({"name": "web", "sources": [{"name": "web", "warc": ["*.warc.gz"]}]})
    return float(report.result["heldout/bits_per_byte"])


def plan(path: Path) -> TrainingPlan:
    recipe = gristmill.load(path)
    with gristmill.remake(["rules"]):
        gristmill.tokens(recipe)
    gristmill.pretrain(path)
    planned = gristmill.plan(recipe, device="h100", devices=8)
    print(planned.best.micro_batch, f"{planned.bill.hours:.1f} hours")
    return planned


if __name__ == "__main__":
    print(gristmill.__version__, curate("recipe.yaml").corpus.rows)
    print(look("recipe.yaml"), search("recipe.yaml"))
    print(compare("recipe.yaml", "other.yaml"))
    print(plan(Path("recipe.yaml")))

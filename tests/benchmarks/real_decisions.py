"""Decisions whose answer is known, by real training: a recipe against itself, and against recipes that damage it.

    .venv/bin/python -m tests.benchmarks.real_decisions aa demo
    GRISTMILL_STEPS=tests.planted.damage .venv/bin/python -m tests.benchmarks.real_decisions effects demo \
        --against shuffled-20.yaml --against shuffled-40.yaml --pairs 1

`aa` decides on another sample of the same text, again and again, each time on pairs of its own, with the runs of eight
other pairs as its A/A bank; it prints each verdict, the variance components of all runs, and what a proxy's noise file
takes from them. `effects` prints what each recipe loses against the first, in bits per byte. Runs are stages of the
home, and found again. With two at once, 200 runs of the default proxy take half an hour of two idle cores.
"""

import gristmill.flows.run.prefect_env  # noqa: F401, I001  (before anything imports prefect)

# isort: split
import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gristmill.flows.comparison.bank import calibrate
from gristmill.flows.comparison.components import fitted
from gristmill.flows.comparison.protocol import Protocol, decide
from gristmill.flows.comparison.runs import RunRequest
from gristmill.flows.decisions.arm_data import proxy_data
from gristmill.flows.decisions.plan import Arms, arms
from gristmill.flows.decisions.runs import ProxyRuns, evaluation_set
from gristmill.flows.recipe.forms import RecipeLike
from gristmill.flows.recipe.proxy import load_proxy
from gristmill.flows.recipe.recipe import load
from gristmill.flows.run.flow import recorded_flow
from gristmill.flows.run.prefect_names import flow_run_name
from gristmill.flows.run.runner import run_context

FIRST = 201  # pair numbers that no decision of the demo takes
BANK_PAIRS = 8
AGAIN = "another sample"


@recorded_flow(name="real_decisions", flow_run_name=flow_run_name, persist_result=False)
def real_decisions(
    recipe: RecipeLike, what: str, against: list[str], decisions: int, pairs: int, judge: list[str]
) -> None:
    base = load(recipe)
    compared = arms(recipe, against) if against else Arms(base.name, {base.name: base}, {}, {})
    proxy = load_proxy()
    with run_context(recipe) as context:
        # whole steps in half of a run, as for a decision
        data = proxy_data(context, proxy, compared.recipes, proxy.tokens, step_tokens=2 * proxy.step_tokens)
        evaluation = evaluation_set(data, judge)
        runs = ProxyRuns(context, proxy, data, evaluation, "", lambda count, train: train(), lambda made: None)
        rates, tokens = proxy.learning_rates, data.budget_tokens

        def bits(arm: str, numbers: Sequence[int], salt: int = 0) -> np.ndarray:
            wanted = [RunRequest(arm, pair, rate, tokens, salt) for pair in numbers for rate in rates]
            return np.array(runs(wanted)).reshape(len(numbers), len(rates), -1)

        def same(requests: Sequence[RunRequest]) -> list[np.ndarray]:
            """Runs of the base; those of the arm AGAIN are its runs of salt 1."""
            return runs([replace(r, arm=base.name, salt=1 if r.arm == AGAIN else r.salt) for r in requests])

        if what == "effects":
            numbers = range(FIRST, FIRST + pairs)
            for name in compared.candidates:
                effects = evaluation.measure(bits(base.name, numbers) - bits(name, numbers))
                print(f"{name}: {effects.mean():+.4f}; by learning rate {effects.mean(axis=0).round(4).tolist()}")
            return
        numbers = np.arange(FIRST, FIRST + decisions * pairs)
        both = np.array([bits(base.name, numbers.tolist(), salt) for salt in (0, 1)])
        for number in range(decisions):
            own, *_ = np.split(np.roll(numbers, -number * pairs), [pairs])
            others = np.roll(numbers, -(number + 1) * pairs)[:BANK_PAIRS].tolist()
            bank = calibrate(same, evaluation, "bank", others, rates, tokens)
            protocol = Protocol(learning_rates=rates, looks=(pairs,), first_pair=int(own[0]), worth_pairs=0)
            [verdict] = decide(protocol, evaluation, base.name, [AGAIN], tokens, same, bank).verdicts
            print(f"{number + 1}: p {verdict.p_value:.3f}: {verdict.sentence()}")
        print(fitted(both, evaluation).model_dump_json(indent=2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["aa", "effects"])
    parser.add_argument("recipe", help="a YAML file, or the name of a shipped recipe")
    parser.add_argument("--against", action="append", default=[], help="another recipe; may be given again")
    parser.add_argument("--decisions", type=int, default=12, help="A/A decisions; at least 3 (default: 12)")
    parser.add_argument("--pairs", type=int, default=4, help="pairs of runs of each (default: 4)")
    parser.add_argument("--judge", action="append", required=True, help="a set that counts; may be given again")
    given = parser.parse_args()
    real_decisions(given.recipe, given.what, given.against, given.decisions, given.pairs, given.judge)


if __name__ == "__main__":
    main()

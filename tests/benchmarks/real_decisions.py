"""Decisions whose answer is known, by real training: a recipe against itself, against recipes that damage it, and
samples of one pool of documents against each other.

    B="-m tests.benchmarks.real_decisions"
    .venv/bin/python $B aa demo --judge reference
    GRISTMILL_STEPS=tests.planted.damage .venv/bin/python $B damage demo --against shuffled-20.yaml --judge reference
    .venv/bin/python $B samples 0.yaml --against 1.yaml --against 2.yaml --clean others.jsonl --resample

`aa` decides on another sample of the same text, again and again, and prints the variance components of all runs, which
a proxy's noise file takes. `damage` decides on the first recipe that --against names, as often. Each such decision has
pairs of its own, and with --bank-pairs the runs of other pairs as its A/A bank. `samples` decides between recipes that
should not differ: each with the next, then each with the one behind it, and so on, all on the same pairs. Runs are
stages of the home, and found again.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gristmill.flows.experiments.decisions.arm_data import proxy_data
from gristmill.flows.experiments.decisions.plan import Arms, arms, judged_by
from gristmill.flows.experiments.decisions.runs import ProxyRuns, evaluation_set
from gristmill.flows.experiments.options import Candidates
from gristmill.flows.recipe.forms import RecipeLike
from gristmill.flows.recipe.proxy import load_proxy
from gristmill.flows.recipe.recipe import load
from gristmill.flows.run.artifacts import flow_run_name
from gristmill.flows.run.flow import recorded_flow
from gristmill.flows.run.runner import run_context
from gristmill.flows.stats.crossed import fitted
from gristmill.flows.stats.protocol import Protocol, calibrate, decide
from gristmill.flows.stats.runs import RunRequest, rate_of_pair
from gristmill.flows.stats.verdict import Conditions

FIRST = 201  # pair numbers that no decision of the demo takes
AGAIN = "another sample"


@recorded_flow(name="real_decisions", flow_run_name=flow_run_name, persist_result=False)
def real_decisions(recipe: RecipeLike, given: Any) -> None:
    """`given`: the arguments of the command."""
    base, samples = load(recipe), given.what == "samples"
    compared = arms(recipe, Candidates(given.against)) if given.against else Arms(base.name, {base.name: base}, {}, {})
    proxy = load_proxy(given.proxy)
    looks = (given.pairs,) if given.pairs else proxy.looks
    most = looks[-1]
    count = max(most, given.bank_pairs) if samples else given.decisions * most
    numbers = np.arange(FIRST, FIRST + count)
    with run_context(recipe) as context:
        data = proxy_data(
            context,
            proxy,
            compared.recipes,
            given.tokens or proxy.tokens,
            step_tokens=2 * proxy.step_tokens,  # whole steps in half of a run, as for a decision
            clean=given.clean,
            pairs=range(FIRST, FIRST + count) if given.resample else None,
        )
        evaluation = evaluation_set(data, given.judge)
        runs = ProxyRuns(context, proxy, data, evaluation, None, lambda count, train: train(), lambda made: None)
        rates, tokens = proxy.learning_rates, data.budget_tokens
        conditions = Conditions(judged_by(evaluation), proxy.model.parameters(proxy.vocab_size), tokens, given.resample)

        def named(requests: Sequence[RunRequest]) -> list[np.ndarray]:
            """Runs of the arm AGAIN are those of the base with salt 1."""
            return runs([replace(r, arm=base.name, salt=1) if r.arm == AGAIN else r for r in requests])

        def decided(number: int, arm: str, candidate: str, own: np.ndarray, others: np.ndarray) -> None:
            bank = calibrate(runs, evaluation, arm, others.tolist(), rates, tokens) if len(others) else None
            protocol = Protocol(
                learning_rates=rates,
                looks=looks,
                first_pair=int(own[0]),
                worth_pairs=0,
                resample=given.resample,
            )
            [verdict] = decide(protocol, evaluation, arm, [candidate], tokens, named, bank, conditions).verdicts
            what = f"{number + 1}: {2 * verdict.pairs} runs, {verdict.effect:+.4f}, p {verdict.p_value:.3f}"
            print(f"{what}: {verdict.sentence()}", flush=True)

        if samples:
            names = list(compared.recipes)
            for number in range(given.decisions):
                at, apart = number % len(names), 1 + number // len(names)
                other = names[(at + apart) % len(names)]
                decided(number, names[at], other, numbers[:most], numbers[: given.bank_pairs])
            return
        candidate = AGAIN if given.what == "aa" else compared.candidates[0]
        for number in range(given.decisions):
            own, others = np.split(np.roll(numbers, -number * most), [most])
            decided(number, base.name, candidate, own, others[: given.bank_pairs])
        if given.what == "aa":
            trained = sorted({request.pair for request in runs.found})
            of_pair = [rate_of_pair(pair, rates) for pair in trained]
            wanted = [
                RunRequest(base.name, p, r, tokens, s) for s in (0, 1) for p, r in zip(trained, of_pair, strict=True)
            ]
            bits = np.array(runs(wanted)).reshape(2, len(trained), -1)
            groups = np.array([rates.index(rate) for rate in of_pair])
            print(fitted(bits, evaluation, groups).model_dump_json(indent=2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["aa", "damage", "samples"])
    parser.add_argument("recipe", help="a YAML file, or the name of a shipped recipe")
    parser.add_argument("--against", action="append", default=[], help="another recipe; may be given again")
    parser.add_argument("--decisions", type=int, default=10, help="how many (default: 10)")
    parser.add_argument("--pairs", type=int, help="pairs of runs of each, with one analysis (default: as the proxy)")
    parser.add_argument("--tokens", type=int, help="of a run (default: the proxy's)")
    parser.add_argument("--bank-pairs", type=int, default=0, help="A/A pairs of each (default: none)")
    parser.add_argument("--judge", action="append", default=[], help="a set that counts; may be given again")
    parser.add_argument("--clean", help="texts that alone count, if --judge names no others")
    parser.add_argument("--proxy", default="small", help="a proxy file, or the name of a shipped one (default: small)")
    parser.add_argument("--resample", action="store_true", help="each pair reads its own half of the hosts")
    given = parser.parse_args()
    real_decisions(given.recipe, given)


if __name__ == "__main__":
    main()

"""How much the runs of a proxy differ, as it was recorded: a JSON file beside the proxy's YAML, of the same name.

By it the smallest effect that a decision sees is known before anything is trained. Verdicts use the A/A bank of their
own decision, and never this file.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from pydantic import Field

from gristmill.flows.recipe.proxy import ProxyConfig, proxy_file
from gristmill.flows.stages.proxy import ProxyTraining, run_record
from gristmill.flows.stats.crossed import Components, fitted
from gristmill.flows.stats.runs import EvaluationSet
from gristmill.storage import files, parquet
from gristmill.storage.damage import opening
from gristmill.storage.home import Home
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.evaluation.documents import evaluation_file
from gristmill.training.config import DOCUMENT_LOSSES, TRAINING_VERSION

MAX_SALTS = 64  # samples of one arm's text that are looked for
# Of the proxy's settings those that decide no run.
_UNDECIDING: dict[str, Any] = dict.fromkeys(("name", "tokens", "sample_bytes", "looks", "evaluation_documents"), True)
_UNDECIDING |= {"training": {"steps", "learning_rate"}}  # which are those of `tokens` and of `learning_rates`

Arm = tuple[str, int]  # the digest of a mixture's contents, and a salt
PairAtRate = tuple[int, float]  # the number of a pair, and its learning rate
Losses = dict[tuple[Arm, PairAtRate], np.ndarray]  # bits of each document


class ProxyNoise(Settings):
    """The content of the file."""

    provenance: str = Field(min_length=1, description="short description of the training, used after `recorded from`")
    proxy: ProxyConfig = Field(description="proxy of these runs; the file cannot be used for another proxy")
    training_version: int = Field(1, ge=1, description="training version of these runs")
    tokens: int = Field(gt=0, description="target tokens of a run")
    documents: int = Field(gt=0, description="evaluation documents")
    mixtures: int = Field(gt=0, description="number of data sets compared; 1: samples of only one")
    degrees: int = Field(gt=0, description="degrees of freedom of the variance between runs")
    components: Components


def read_noise(source: Any, proxy: ProxyConfig) -> ProxyNoise | None:
    """What was recorded of a proxy; None for one without such a file. `source`: the proxy as `load_proxy` takes it.

    Raises ValueError for a file that cannot be used, or that is another proxy's.
    """
    path = proxy_file(source)
    if path is None or not (noise := path.with_suffix(".json")).is_file():
        return None
    data = noise.read_bytes()
    with opening(f"{noise}", "noise of a proxy", "fit it again, or remove it"):
        record = ProxyNoise.model_validate(orjson.loads(data))
    if _deciding(record.proxy) != _deciding(proxy):
        raise ValueError(f"{noise} was fitted to runs of a different proxy than {path}; fit it again, or remove it")
    if record.training_version != TRAINING_VERSION:
        raise ValueError(
            f"{noise} is outdated: it was measured with training version {record.training_version}, but this "
            f"is version {TRAINING_VERSION}; fit it again, or remove it"
        )
    return record


def write_noise(noise: ProxyNoise, path: Path) -> None:
    path.write_bytes(orjson.dumps(noise.model_dump(mode="json"), option=orjson.OPT_INDENT_2) + b"\n")


def fit_noise(home: str, proxy: ProxyConfig, provenance: str) -> ProxyNoise:
    """Variance components of all finished runs of a proxy in a home, with the most common number of tokens and the most
    common evaluation documents.

    Variances of runs and pairs are pooled over blocks of arms that have pairs in common, by degrees of freedom: the
    samples (by salt) of each mixture, and the mixtures. How an arm acts on documents is taken from the largest block of
    mixtures, if there is one. Raises ValueError for a home without a block of 2 arms and 2
    pairs.
    """
    tokens, evaluation, losses = _runs(home, proxy)
    trained: dict[PairAtRate, set[Arm]] = defaultdict(set)
    for arm, pair in losses:
        trained[pair].add(arm)
    every = set[Arm]().union(*trained.values())
    names = sorted({mixture for mixture, _ in every})
    of_samples = [block for one in names for block in _blocks(trained, {arm for arm in every if arm[0] == one})]
    of_mixtures = _blocks(trained, {arm for arm in every if arm[1] == 0})

    def fits(found: list[tuple[list[Arm], list[PairAtRate]]]) -> list[tuple[Components, int]]:
        """Of each block with several pairs at a learning rate, and its degrees of freedom."""
        fitted_blocks = []
        for arms, pairs in found:
            rates = np.array([proxy.learning_rates.index(rate) for _, rate in pairs])
            if degrees := len(pairs) - len(np.unique(rates)):
                bits = np.array([[losses[arm, pair] for pair in pairs] for arm in arms])
                fitted_blocks.append((fitted(bits, evaluation, rates), (len(arms) - 1) * degrees))
        return fitted_blocks

    samples, mixtures = fits(of_samples), fits(of_mixtures)
    blocks = [*samples, *mixtures]
    if not blocks:
        raise ValueError(
            f"{home} has {len(losses)} runs of the proxy {proxy.name} on {tokens:,} tokens, but no two arms, "
            "or samples of one arm, with two pairs in common: train an A/A bank first"
        )
    weights = [degrees for _, degrees in blocks]

    def pooled(name: str) -> float:
        return float(np.sqrt(np.average([getattr(one, name) ** 2 for one, _ in blocks], weights=weights)))

    components = max(mixtures or blocks, key=lambda block: block[1])[0]
    components = components.model_copy(update={name: pooled(name) for name in ("pair", "run", "run_document")})
    return ProxyNoise(
        provenance=provenance,
        proxy=proxy,
        training_version=TRAINING_VERSION,
        tokens=tokens,
        documents=len(evaluation.size),
        mixtures=max((len(arms) for arms, _ in of_mixtures), default=1),
        degrees=sum(weights),
        components=components,
    )


def _blocks(trained: Mapping[PairAtRate, set[Arm]], chosen: set[Arm]) -> list[tuple[list[Arm], list[PairAtRate]]]:
    """Arms among those chosen with the pairs that they have in common, 2 or more of each. `trained`: the arms that
    have a pair. Pairs of equal arms are together, so no run is in two of the blocks."""
    pairs: dict[frozenset[Arm], list[PairAtRate]] = defaultdict(list)
    for pair, arms in sorted(trained.items()):
        pairs[frozenset(arms & chosen)].append(pair)
    return [(sorted(arms), having) for arms, having in pairs.items() if len(arms) > 1 and len(having) > 1]


def _deciding(proxy: ProxyConfig) -> dict[str, Any]:
    return proxy.model_dump(exclude=_UNDECIDING)


def _runs(home: str, proxy: ProxyConfig) -> tuple[int, EvaluationSet, Losses]:
    groups: dict[tuple[int, str], Losses] = defaultdict(dict)
    tables = {}
    for stage in Home(home).stages("proxy"):
        if stage.version != TRAINING_VERSION:
            continue
        record, tokens = ProxyTraining.model_validate(stage.settings), stage.result["tokens"]
        training = record.training
        salt = _salt(record, proxy, tokens)
        if salt is None or training.rates.matrices not in proxy.learning_rates:
            continue
        table = parquet.read_table(files.join(stage.folder, DOCUMENT_LOSSES))
        documents = files.digest(orjson.dumps(table.select(["set", "document", "bytes"]).to_pylist()))
        tables[documents] = table
        arm = (stage.digests["mixture"], salt)
        groups[tokens, documents][arm, (training.seed, training.rates.matrices)] = table["bits"].to_numpy()
    if not groups:
        raise ValueError(f"{home} has no finished run of the proxy {proxy.name}: train an A/A bank first")
    tokens, documents = max(groups, key=lambda group: (len(groups[group]), group))
    table = tables[documents]
    names, set_of = np.unique(table["set"].to_numpy(zero_copy_only=False).astype(str), return_inverse=True)
    sets, hosts = tuple(names.tolist()), _hosts(home, table)
    return tokens, EvaluationSet(sets, set_of, table["bytes"].to_numpy(), sets, hosts), groups[tokens, documents]


def _hosts(home: str, losses: pa.Table) -> np.ndarray:
    """The number of each evaluation document's host, int64 (documents,), by the stage of evaluation documents that has
    these, in this order; without it each document is its own."""
    for stage in Home(home).stages("evaluation_documents"):
        path = evaluation_file(stage.folder)
        if "host" not in parquet.columns(path):  # of a version that knew no hosts
            continue
        table = parquet.read_table(path, ["set", "bytes", "host"])
        if all(table[name].to_pylist() == losses[name].to_pylist() for name in ("set", "bytes")):
            return np.unique(table["host"].to_numpy().astype(str), return_inverse=True)[1].astype(np.int64)
    return np.arange(len(losses))


def _salt(record: ProxyTraining, proxy: ProxyConfig, tokens: int) -> int | None:
    """The salt of a run; None for a run of another proxy."""
    training = record.training
    salts = range(MAX_SALTS)
    return next(
        (n for n in salts if run_record(proxy, tokens, training.rates.matrices, training.seed, n) == record), None
    )

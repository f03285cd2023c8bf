"""Write the plan of a mixture: shares of the sources, phases, and the training manifest."""

import logging
from collections.abc import Sequence
from typing import Any

import orjson

from gristmill.storage import checked_json, files
from gristmill.storage.damage import RecordedFile
from gristmill.storage.training_manifest import token_dtype
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.strategies import Stretch, stretches, total

log = logging.getLogger(__name__)

# Up to so many epochs repeated tokens are worth nearly as much as new ones (Muennighoff et al. 2023)
MAX_EPOCHS = 4


def shares(weights: dict[str, float], tokens: dict[str, int], budget: int, max_epochs: float) -> dict[str, float]:
    """Fraction of `budget` tokens that each source gives; sums to one.

    Raises ValueError when all sources, repeated `max_epochs` times, do not fill the budget.
    """
    having = {name: tokens[name] for name in weights}
    [stretch] = stretches(Mixture(weights=weights, max_epochs=max_epochs), having, budget)
    return stretch.shares


def plan_mixture(folder: str, shard: int, listed: str, **arguments: Any) -> dict:
    """`write_mixture` of the shards that the file `listed` has: `tokens`, `heldout`, `rows`, as that is given them."""
    return write_mixture(folder, shard, **files.read_json(listed), **arguments)


def write_mixture(
    folder: str, shard: int, tokens: dict[str, list[dict]], heldout: dict[str, list[dict]], tokenizer: RecordedFile,
    token_bytes: RecordedFile, end_of_text: int, budget: int, settings: Mixture,
    rows: dict[str, list[dict]] | None = None, row_length: int | None = None, digests: dict[str, str] | None = None,
) -> dict:  # fmt: skip
    """Write `mixture.json`: what training reads, all paths relative to its folder.

    `tokens` and `heldout` give the shards (`path`, `tokens`, `digest`) by source, `budget` the tokens of the whole run;
    `rows` the packed rows (`path`, `rows`, `pieces`, `digest`) of `row_length` tokens, where documents are packed;
    `digests` that of the documents of each set of `heldout`, where they are fixed: then it is called `KIND/NAME`.
    """
    if empty := sorted(name for name, parts in tokens.items() if not parts):
        raise ValueError(f"the mixture names {', '.join(empty)}, but no document of these is left to train on")
    totals = {name: sum(s["tokens"] for s in parts) for name, parts in tokens.items()}
    plan = stretches(settings, totals, budget)
    mean_share = mean_shares(plan, budget)
    for name, share in mean_share.items():
        if share * budget > MAX_EPOCHS * totals[name]:
            log.warning(
                "%s is read %.1f times: repeated more than %d times, tokens are worth less and less (arXiv 2305.16264)",
                name,
                share * budget / totals[name],
                MAX_EPOCHS,
            )
    counts = orjson.loads(token_bytes.read())
    mixture = {
        "vocab_size": len(counts),
        "dtype": token_dtype(len(counts)),
        "tokenizer": {"path": tokenizer.path, "digest": tokenizer.digest},
        "end_of_text": end_of_text,
        "token_bytes": counts,
        "sources": [
            {
                "name": name,
                "share": share,
                "tokens": totals[name],
                "epochs": share * budget / totals[name],
                "shards": tokens[name],
            }
            | ({"rows": rows[name]} if rows else {})
            for name, share in mean_share.items()
        ],
        "heldout": [
            _set(name, parts, (digests or {}).get(name, "")) for name, parts in sorted(heldout.items()) if parts
        ],
    }
    if rows:
        mixture["row_length"] = row_length
    if settings.phases:
        mixture["phases"] = _phases(plan, list(mean_share))
    if not mixture["heldout"]:
        raise ValueError(
            f"no document was held out: raise mixture.heldout_fraction ({settings.heldout_fraction}) "
            f"or mixture.heldout_documents ({settings.heldout_documents})"
        )
    checked_json.write(files.join(folder, "mixture.json"), mixture)
    return {"sources": {s["name"]: {k: s[k] for k in ("share", "tokens", "epochs")} for s in mixture["sources"]}}


def _set(name: str, shards: list[dict], digest: str) -> dict:
    if not digest:
        return {"name": name, "shards": shards}
    kind, _, own = name.partition("/")
    return {"name": own, "kind": kind, "digest": digest, "shards": shards}


def mean_shares(plan: Sequence[Stretch], budget: int) -> dict[str, float]:
    """Of the whole training, by group; they sum to one."""
    if len(plan) == 1:
        return plan[0].shares
    names = sorted({name for stretch in plan for name in stretch.shares})
    return {name: total(s.shares.get(name, 0.0) * s.tokens for s in plan) / budget for name in names}


def _phases(plan: Sequence[Stretch], names: Sequence[str]) -> list[dict]:
    """`first`: tokens of training ahead of the stretch; `shares`: in the order of the sources."""
    phases, first = [], 0.0
    for stretch in plan:
        phases.append({"first": round(first), "shares": [stretch.shares.get(name, 0.0) for name in names]})
        first += stretch.tokens
    return phases

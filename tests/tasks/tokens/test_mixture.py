"""Shares of sources, and the file that training reads them from."""

import json

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from gristmill.samples.shards import Tokens
from gristmill.storage import files
from gristmill.storage.damage import RecordedFile
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.plan import shares, write_mixture
from tests.recorded import recorded

NAMES = "abcde"
sources = st.lists(st.tuples(st.floats(0.01, 100), st.integers(1, 10**9)), min_size=1, max_size=len(NAMES)).map(
    lambda rows: {name: row for name, row in zip(NAMES, rows, strict=False)}
)


def water_level(weights, available, budget) -> dict[str, float]:
    """The level at which min(available, level * weight) fills the budget, found by halving."""
    low, high = 0.0, max(available[n] / weights[n] for n in weights)
    for _ in range(200):
        level = (low + high) / 2
        if sum(min(available[n], level * weights[n]) for n in weights) < budget:
            low = level
        else:
            high = level
    return {n: min(available[n], high * weights[n]) / budget for n in weights}


@given(sources, st.floats(0.1, 8), st.floats(0.001, 1))
def test_shares_are_those_of_water_filling(given, max_epochs, filled):
    weights = {name: weight for name, (weight, _) in given.items()}
    tokens = {name: count for name, (_, count) in given.items()}
    available = {name: tokens[name] * max_epochs for name in tokens}
    budget = int(sum(available.values()) * filled)
    assume(budget > 0)
    found = shares(weights, tokens, budget, max_epochs)
    assert sum(found.values()) == pytest.approx(1)
    assert list(found) == sorted(weights)
    for name, share in found.items():
        assert share * budget <= available[name] * (1 + 1e-9)
    free = [name for name in found if found[name] * budget < available[name] * (1 - 1e-9)]
    for a in free:
        assert found[a] / weights[a] == pytest.approx(found[free[0]] / weights[free[0]])
        for b in found.keys() - set(free):
            # what is capped would have had no more than its cap otherwise
            assert found[b] / weights[b] <= found[a] / weights[a] * (1 + 1e-9)
    assert found == pytest.approx(water_level(weights, available, budget), rel=1e-6, abs=1e-12)


def test_weights_are_shares_where_nothing_is_capped():
    assert shares({"a": 3, "b": 1}, {"a": 100, "b": 100}, 100, 1) == {"a": 0.75, "b": 0.25}


def test_a_capped_source_leaves_its_rest_to_the_others():
    found = shares({"a": 1, "b": 2, "c": 1}, {"a": 10, "b": 1000, "c": 1000}, 400, 2)
    assert found == pytest.approx({"a": 20 / 400, "b": 380 * 2 / 3 / 400, "c": 380 / 3 / 400})


def test_tokens_of_sources_without_a_weight_do_not_count():
    assert shares({"a": 1}, {"a": 100, "b": 10**9}, 100, 1) == {"a": 1}
    with pytest.raises(ValueError):
        shares({"a": 1}, {"a": 100, "b": 10**9}, 101, 1)


def test_a_budget_that_cannot_be_met_says_what_there_is_and_what_to_change():
    with pytest.raises(ValueError) as error:
        shares({"a": 1, "b": 1}, {"a": 1000, "b": 500}, 7000, 4)
    for part in ("7,000", "6,000", "a 1,000", "max_epochs", "training.steps"):
        assert part in str(error.value)
    assert shares({"a": 1, "b": 1}, {"a": 1000, "b": 500}, 6000, 4) == pytest.approx({"a": 2 / 3, "b": 1 / 3})


@pytest.mark.parametrize("weights", [{}, {"a": 0}, {"a": 1, "b": -1}, {"a": float("nan")}])
def test_weights_that_mean_nothing_are_refused(weights):
    with pytest.raises(ValidationError):
        Mixture(weights=weights)


@pytest.fixture
def planned(tmp_path):
    """Arguments of write_mixture over two sources whose shards lie beside the plan's folder."""
    (tmp_path / "tokens").mkdir()

    def shard(name: str, n: int) -> dict:
        np.full(n, 7, "<u2").tofile(tmp_path / "tokens" / name)
        return {"path": f"../tokens/{name}", "tokens": n, "digest": files.checksum(str(tmp_path / "tokens" / name))}

    (tmp_path / "token_bytes.json").write_text(json.dumps([0, 0, 0, *[1] * 7]))
    return {
        "tokens": {"web": [shard("w0.bin", 300), shard("w1.bin", 500)], "books": [shard("b0.bin", 100)]},
        "heldout": {"web": [shard("wh.bin", 40)], "books": []},
        "tokenizer": RecordedFile("../tokens/tokenizer.model", "0" * 32),
        "token_bytes": recorded(tmp_path / "token_bytes.json"),
        "end_of_text": 2,
        "budget": 1000,
        "settings": Mixture(weights={"web": 1, "books": 1}, max_epochs=3),
    }


def test_training_reads_what_was_planned(tmp_path, planned):
    record = write_mixture(str(tmp_path / "plan"), 0, **planned)
    mixture = load_training_manifest(tmp_path / "plan" / "mixture.json")
    assert mixture.vocab_size == 10 and mixture.end_of_text == 2 and mixture.token_bytes == (0, 0, 0, *[1] * 7)
    assert mixture.tokenizer.path == tmp_path / "tokens" / "tokenizer.model"
    found = {s.name: (s.share, s.tokens, s.epochs) for s in mixture.sources}
    assert found == {"books": (0.3, 100, 3.0), "web": (0.7, 800, 0.875)}
    assert {name: tuple(r.values()) for name, r in record["sources"].items()} == found
    for source in (*mixture.sources, *mixture.heldout):
        tokens = Tokens(source.shards, mixture.vocab_size)
        assert set(tokens.read(0, len(tokens))) == {7}
    assert [(h.name, len(h.shards)) for h in mixture.heldout] == [("web", 1)]


def test_the_same_plan_twice_is_the_same_file(tmp_path, planned):
    write_mixture(str(tmp_path / "a"), 0, **planned)
    planned["tokens"] = dict(reversed(planned["tokens"].items()))
    planned["heldout"] = dict(reversed(planned["heldout"].items()))
    write_mixture(str(tmp_path / "b"), 0, **planned)
    paths = [str(tmp_path / folder / "mixture.json") for folder in "ab"]
    assert files.checksum(paths[0]) == files.checksum(paths[1])


def test_a_source_without_documents_is_an_error_that_names_it(tmp_path, planned):
    planned["tokens"]["books"] = []
    with pytest.raises(ValueError, match="books.*no document"):
        write_mixture(str(tmp_path / "plan"), 0, **planned)
    assert not (tmp_path / "plan").exists()


def test_no_heldout_document_is_an_error(tmp_path, planned):
    planned["heldout"] = {"web": [], "books": []}
    with pytest.raises(ValueError, match="heldout_fraction"):
        write_mixture(str(tmp_path / "plan"), 0, **planned)

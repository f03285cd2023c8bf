"""What runs of a comparison take up of a recipe's keys: every key is classified, and each that is not has a reason."""

from dataclasses import replace

import pytest

from gristmill.flows.experiments.decisions import page
from gristmill.flows.experiments.decisions.arm_settings import (
    MIXTURE,
    MODEL,
    RECIPE,
    TRAINING,
    ArmSettings,
    arm_settings,
    check_data,
    check_tokens,
    not_compared,
    own_tokenizers,
    proxy_values,
    step_unit,
)
from gristmill.flows.experiments.decisions.device import ArmCost, arm_cost, cost_sentence
from gristmill.flows.experiments.decisions.plan import Arms, planned
from gristmill.flows.experiments.options import DecisionOptions
from gristmill.flows.recipe.proxy import load_proxy
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.recipe.variants import variant
from gristmill.flows.stages.proxy import run_record
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.training.config import TrainingConfig
from gristmill.training.model_config import ModelConfig
from tests.flows.decisions import CONDITIONS, report

PROXY = load_proxy("small")
BASE = load(
    {
        "name": "base",
        "sources": [{"name": "web", "jsonl": ["a"]}],
        "steps": [{"step": "extract"}],
        "mixture": {"weights": {"web": 1}},
        "training": {"steps": 200, "warmup_steps": 20, "batch": 8},
    }
)


def compared(*settings: str, base: Recipe = BASE) -> dict[str, ArmSettings]:
    recipes = {"base": base} | {one: variant(base, one).recipe for one in settings}
    return arm_settings(recipes, PROXY)


@pytest.mark.parametrize(
    ("table", "settings"), [(TRAINING, TrainingConfig), (MODEL, ModelConfig), (MIXTURE, Mixture), (RECIPE, Recipe)]
)
def test_every_key_is_compared_or_has_a_reason(table, settings):
    unclassified = set(settings.model_fields) - set(table)
    assert not unclassified, f"add these to the table of arm_settings.py: {sorted(unclassified)}"


def test_arms_that_differ_in_no_setting_train_the_proxy_as_it_is():
    for setting in ("mixture.max_epochs=2", "limit=9", "mixture.packing=best_fit"):
        assert all(one == ArmSettings(PROXY) for one in compared(setting).values())


def test_a_batch_is_that_of_the_recipe_and_runs_read_the_same_number_of_tokens():
    found = compared("training.batch=32", "training.batch=12")
    unit = step_unit(found)
    assert unit == 96 * 256, "the least common multiple of 8, 12 and 32 sequences"
    tokens = 8 * unit
    for name, batch in (("base", 8), ("training.batch=32", 32), ("training.batch=12", 12)):
        for length in (tokens, tokens // 2):
            record = run_record(found[name].proxy, length, 0.005, 1, 0)
            assert record.training.batch == batch
            assert record.training.steps * batch * record.model.seq_len == length
        share = record.training.warmup_steps / record.training.steps
        assert share == pytest.approx(0.1, abs=1 / record.training.steps), "as that of the proxy"
    assert found["base"].changes == ("training.batch 8",)


def test_a_learning_rate_is_taken_as_its_ratio_and_a_warm_up_as_its_share():
    found = compared("training.learning_rate=0.012")["training.learning_rate=0.012"]
    assert found.rate == pytest.approx(2) and found.proxy == PROXY, "of the 0.006 of Muon"
    adamw = compared("training.optimizer=adamw")["training.optimizer=adamw"]
    assert adamw.rate == pytest.approx(0.5) and adamw.proxy.training.optimizer == "adamw"
    found = compared("training.warmup_steps=100")
    assert found["base"].proxy.training.warmup_steps == round(0.1 * 195)
    assert found["training.warmup_steps=100"].proxy.training.warmup_steps == round(0.5 * 195)


def test_a_model_is_the_proxy_with_the_values_that_differ():
    found = compared("model.tie_embeddings=true", "model.seq_len=512")
    tied, long = found["model.tie_embeddings=true"].proxy, found["model.seq_len=512"].proxy
    assert tied.model == PROXY.model.model_copy(update={"tie_embeddings": True})
    assert long.model == PROXY.model.model_copy(update={"seq_len": 512})
    costs = {name: arm_cost(one, 99_328) for name, one in found.items()}
    assert costs["base"].parameters - costs["model.tie_embeddings=true"].parameters == 2048 * 48
    # attention scores: 12 layers * dim * seq_len operations a token
    assert costs["model.seq_len=512"].flops - costs["base"].flops == 12 * 2 * 48 * 256 * 99_328
    assert cost_sentence(costs).startswith("arms differ in cost: model.tie_embeddings=true has 0.61 times the param")
    assert not cost_sentence({"a": costs["base"], "b": costs["base"]})


def test_tokenizers_are_each_recipes_own_where_they_differ():
    recipes = {"base": BASE, "other": variant(BASE, "tokenizer.vocab_size=4096").recipe}
    assert own_tokenizers(recipes, given=False) and not own_tokenizers(recipes, given=True)
    sizes = {name: one.proxy.vocab_size for name, one in arm_settings(recipes, PROXY).items()}
    assert sizes == {"base": 32_000, "other": 4096}
    with pytest.raises(ValueError, match=r"tokenizer \(--tokenizer gives all recipes the same tokenizer; remove it"):
        arm_settings(recipes, PROXY, given=True)


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        (
            "training.steps=500",
            r"training.steps \(the runs of all recipes read the same number of tokens; use --tokens",
        ),
        ("training.seed=3", r"training.seed \(each pair of runs sets it"),
        ("training.micro_batch=2", r"training.micro_batch \(it changes only speed"),
        ("training.eval_every=9", r"training.eval_every \(it changes only what is measured"),
        ("training.parallel.replicas=2", r"training.parallel \(it changes only speed"),
        ("training.objective=prefix_lm", r"training.objective \(recipes are compared by the causal loss"),
        ("training.guard.max_rollbacks=9", r"training.guard \(the proxy is trained in the same way with both"),
        ("training.learning_rate=0.006", r"training.learning_rate \(the proxy is trained in the same way with both"),
        ("export.to=somewhere", r"export \(it changes nothing that a model is trained on"),
        ("name=other", r"name \(it changes nothing"),
        ("seed=9", r"seed \(it seeds the tokenizer's sample"),
        ("mixture.heldout_fraction=0.1", r"mixture.heldout_fraction \(a comparison holds out its own"),
    ],
)
def test_what_is_not_compared_is_refused_with_the_reason(setting, reason):
    with pytest.raises(ValueError, match=f"differs from base in nothing that a comparison trains: {reason}") as error:
        compared(setting)
    assert "gristmill run RECIPE --set KEY=VALUE" in str(error.value)


def test_keys_beside_one_that_is_compared_are_listed():
    other = variant(BASE, "training.steps=500", "training.batch=16").recipe
    left = not_compared({"base": BASE, "other": other}, given=False)
    assert list(left["other"]) == ["training.steps"]
    plan = planned(Arms("base", {"base": BASE, "other": other}, {}, {}), OPTIONS, lambda proxy: None, {})
    shown = "\n".join(plan.lines())
    assert "not compared: training.steps of other: the runs of all recipes read" in shown
    assert "  other: training.batch 16; 251,904 parameters, " in shown
    assert plan.noise is None and "for the proxy small with these settings" in shown
    assert plan.conditions.costs == "", "a batch costs nothing"


def test_recipes_with_the_same_documents_are_refused_where_all_have_the_same_models():
    check_data({"base": BASE, "other": variant(BASE, "limit=3", "training.batch=9").recipe})
    for setting in ("training.batch=9", "model.layers=3", "tokenizer.vocab_size=4096"):
        with pytest.raises(ValueError, match=r"the models and the tokenizer are the same for all recipes; use `grist"):
            check_data({"base": BASE, "other": variant(BASE, setting).recipe})


def test_the_report_and_the_verdict_name_costs_that_differ():
    costs = {"base": ArmCost(100, 2e9, 5e5), "wide": ArmCost(150, 2e9, 6e5)}
    sentence = cost_sentence(costs)
    assert sentence == "arms differ in cost: wide has 1.50 times the parameters of base"
    plain = report({"wide": 0.02})
    assert page.arms(plain).texts()[0][-1].name == "CPU hours"
    shown = replace(plain, arms={name: replace(arm, cost=costs[name]) for name, arm in plain.arms.items()})
    table = page.arms(shown)
    shown_columns = [column.name for column in table.texts()[0]]
    assert shown_columns[-2:] == ["parameters", "bytes of text of a run"], "not operations"
    assert [row[-2:] for row in table.rows] == [(100, 5e5), (150, 6e5)]
    assert shown.as_json()["arms"]["wide"]["cost"] == {"parameters": 150, "flops": 2e9, "text_bytes": 6e5}
    verdict = replace(plain.verdicts[0], conditions=replace(CONDITIONS, costs=sentence))
    assert verdict.sentence() == plain.verdicts[0].sentence().replace("; it applies to", f"; {sentence}; it applies to")


OPTIONS = DecisionOptions(judge=["web"])


def test_values_that_the_proxy_cannot_take_are_refused():
    with pytest.raises(ValueError, match=r"^model.heads=64: the proxy small cannot be trained with model.heads 64"):
        compared("model.heads=64", base=variant(BASE, "model.dim=128").recipe)
    with pytest.raises(ValueError, match=r"^training.reduce_dtype=bf16: training.reduce_dtype acts between processes"):
        compared("training.reduce_dtype=bf16")
    with pytest.raises(ValueError, match=r"^training.fp8_min_dim=64: training.fp8_min_dim is 64, but no matrix of"):
        compared("training.fp8_min_dim=64", base=variant(BASE, "model.dim=128").recipe)


def test_runs_of_too_few_steps_are_refused():
    found = compared("training.batch=64")
    check_tokens(found, 4 * 64 * 256)
    with pytest.raises(ValueError, match=r"^training.batch=64: a step takes 16,384 tokens, so .* at least 65,536, but"):
        check_tokens(found, 4 * 64 * 256 - 1)


def test_values_that_all_recipes_share_are_named_where_the_proxy_has_others():
    """A recipe in fp16 without and with a loss scale: the proxy is not in fp16, so the plan must say so."""
    base = variant(BASE, "training.precision=fp16", "training.batch=32").recipe
    settings = compared("training.loss_scaling=false", base=base)
    shared = proxy_values(base, settings)
    assert "training.precision fp16 (the proxy has auto)" in shared
    assert any(line.startswith("training.batch 32 (the proxy has ") for line in shared)
    assert not any("loss_scaling" in line for line in shared)
    assert proxy_values(base, {"base": ArmSettings(PROXY), "other": ArmSettings(PROXY)}) == []

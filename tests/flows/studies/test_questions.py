"""The arms of each question are recipes that differ in what is trained, and reports say what was found."""

from dataclasses import replace

import pytest
from lxml import html

from gristmill.flows.cli.scaling import QuestionName
from gristmill.flows.experiments.decisions.arm_settings import arm_settings
from gristmill.flows.experiments.options import StudyOptions
from gristmill.flows.experiments.studies.report import ArmResult, StudyReport, effect_plot, study_page
from gristmill.flows.experiments.studies.study import QUESTIONS, RESUME
from gristmill.flows.recipe import variants
from gristmill.flows.recipe.proxy import load_proxy
from gristmill.flows.recipe.recipe import load
from gristmill.flows.stats.critical_batch import CriticalBatch

RECIPE, PROXY, OPTIONS = load("demo"), load_proxy("small"), StudyOptions(judge=["extracted"])


def arms(question: str):
    choices = QUESTIONS[question].choices(RECIPE, PROXY, OPTIONS)
    recipes = {one.label: variants.variant(RECIPE, *one.settings).recipe for one in choices}
    return choices, recipes, arm_settings(recipes, PROXY)


def test_the_command_takes_the_questions_that_there_are():
    assert [*QuestionName] == [*QUESTIONS, RESUME]


@pytest.mark.parametrize("question", QUESTIONS)
def test_arms_differ_in_what_is_trained(question):
    choices, recipes, settings = arms(question)
    assert len(recipes) == len(choices) >= 3
    trained = {(one.proxy.model_dump_json(), one.rate, recipes[name].mixture.model_dump_json())
               for name, one in settings.items()}  # fmt: skip
    assert len(trained) == len(choices)
    assert all((choice.x is not None) == bool(QUESTIONS[question].axis) for choice in choices)


def test_learning_rates_follow_the_batch_by_the_rules():
    _, _, batches = arms("batch")
    assert [one.proxy.training.batch for one in batches.values()] == [4, 8, 16, 32]
    assert [one.rate for one in batches.values()] == pytest.approx([1, 2**0.5, 2, 8**0.5], rel=1e-4)
    choices, recipes, _ = arms("rate-rule")
    base = {choices[0].label: recipes[choices[0].label]}
    for choice, rate in zip(choices[1:], (1, 8**0.5, 8), strict=True):
        # each arm is compared with the base by itself, and only keys that differ between the two are taken up
        first, other = arm_settings(base | {choice.label: recipes[choice.label]}, PROXY).values()
        assert (first.proxy.training.batch, first.rate, other.proxy.training.batch) == (4, 1, 32)
        assert other.rate == pytest.approx(rate, rel=1e-4)


def test_precisions_clips_and_vocabularies_are_those_of_the_labels():
    _, _, precisions = arms("precision")
    found = [(one.proxy.training.precision, one.proxy.training.loss_scaling) for one in precisions.values()]
    assert found == [("fp32", True), ("bf16", True), ("fp16", True), ("fp16", False)]
    _, _, clips = arms("clip")
    assert [one.proxy.training.clip_norm for one in clips.values()] == [1.0, 0.1, None]
    _, _, sizes = arms("vocabulary")
    assert [one.proxy.vocab_size for one in sizes.values()] == [2048, 1024, 4096, 8192]


ROWS = (
    ArmResult("batch 4", 4, 2.80),
    ArmResult("batch 8", 8, 2.81, -0.011, -0.014, -0.008, "worse", 251_904, 1e12, 12.0),
    ArmResult("batch <16>", 16, 2.80, 0.001, -0.004, 0.006, "inconclusive", 251_904, 1e12, 11.0),
    ArmResult("batch 64", 64, failure="the loss is not finite\nmore"),
)
REPORT = StudyReport("0" * 16, "web", "batch", "Which?", "batch", ROWS, None, CriticalBatch(9.0, 6.0, 14.0, 0.2), 5.0)


def test_the_sentence_has_every_arm_with_its_interval():
    compared, alike, failed, critical, scale = REPORT.sentence.split("; ")
    assert compared == "batch 8 is worse than batch 4 by 0.0110 bits per byte (90% interval 0.0080 to 0.0140)"
    assert alike == (
        "no difference from batch 4 was detected for batch <16> "
        "(interval of the effect -0.0040 to +0.0060 bits per byte)"
    )
    assert failed == "batch 64 failed: the loss is not finite"
    assert critical == (
        "the critical batch is 9 sequences (90% interval 6 to 14), if a rate by the square root of the batch suits "
        "each, else it is larger"
    )
    assert scale == "the gradient noise scale at the end of the runs is 5 sequences"
    unknown = CriticalBatch(None, None, None, None, "the loss does not rise")
    refused = replace(REPORT, critical=unknown, noise_scale=None)
    assert "these batches do not identify the critical batch: the loss does not rise" in refused.sentence


def test_the_page_has_a_plot_and_escapes_names():
    shown = study_page(REPORT)
    assert "<svg" in shown and "<16>" not in shown and "batch &lt;16&gt;" in shown
    text = " ".join(html.fromstring(shown).text_content().split())
    assert "is worse than batch 4 by 0.0110" in text and "failed" in text
    resumed = StudyReport("1", "web", "resume", "Equal?", "", (ArmResult("whole"), ArmResult("again", outcome="equal")))
    assert effect_plot(resumed) is None and "again: equal" in resumed.sentence
    assert REPORT.as_json()["critical_batch"]["value"] == 9.0

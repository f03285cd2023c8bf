"""What Prefect's user interface is given: tables of numbers."""

from types import SimpleNamespace

from gristmill.flows.reports.funnel import FunnelRow
from gristmill.flows.reports.run import MixedSource
from gristmill.flows.run.artifacts import funnel_table, training_figures


def test_the_funnel_has_numbers_and_the_tokens_that_were_counted():
    rows = [
        FunnelRow("extract", 1200, 1100, None, 44_000, {"empty_text": 90, "http_status": 10}),
        FunnelRow("pii", 1100, 1099, 44_000, 43_960, {"spans": 1}, {"email": 1046}),
        FunnelRow("never", 0, 0, 0, 0, {}),
    ]
    extract, pii, never, tokens = funnel_table(SimpleNamespace(steps=rows, characters_per_token=4.0, tokens=10_990))
    assert extract == {
        "step": "extract",
        "documents in": 1200,
        "documents out": 1100,
        "kept %": 91.67,
        "tokens": 11_000,
        "top reasons": "empty_text 90, http_status 10",
    }
    assert (pii["step"], pii["top reasons"]) == ("pii, cuts", "email 1,046, spans 1")
    assert (never["kept %"], never["top reasons"]) == (None, "")
    assert (tokens["step"], tokens["tokens"]) == ("tokens", 10_990)


def test_figures_of_a_model_have_names():
    names = ("parameters", "steps", "tokens", "unigram/loss", "unigram/bits_per_byte")
    result = dict.fromkeys((*names, "heldout/loss", "heldout/bits_per_byte"), 1.5) | {"sample": "text"}
    mixture = [MixedSource("web", 0.7, 1.04)]
    figures = training_figures(SimpleNamespace(result=result, mixture=mixture, training_losses=[8.0, 6.0, 5.0]))
    assert figures["share of web in training tokens"] == 0.7 and figures["epochs of web in training"] == 1.04
    assert "sample" not in figures
    assert (figures["first training loss"], figures["last training loss"]) == (8.0, 5.0)

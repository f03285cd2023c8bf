"""Keys in the forms of 66 vendors and surroundings, written down before the code that finds them was read."""

import pyarrow as pa
import pytest

from gristmill.tasks.documents.measure import measured
from gristmill.tasks.pii.step import Pii
from tests.tasks.pii.vendor_forms import forms, others

# Secrets without a form of their own, which the step doesn't look for, except the ones that the guide to personal data
# names (docs/guides/personal-data.md).
NOT_SOUGHT = {
    "Atlassian token",
    "Twilio API key",
}


def masked(texts: list[str]) -> list[str]:
    columns = {"id": [str(i) for i in range(len(texts))], "url": [""] * len(texts)}
    table = pa.table(
        columns | {"text": pa.array(texts, pa.large_string()), "characters": [len(text) for text in texts]}
    )
    return measured(table, [Pii()]).table["text"].to_pylist()


@pytest.mark.parametrize("seed", range(5))
def test_keys_of_vendors_are_masked(seed):
    given = forms(seed)
    left = {
        name
        for (name, _, secret), text in zip(given, masked([text for _, text, _ in given]), strict=True)
        if secret in text
    }
    assert left == NOT_SOUGHT


def test_what_only_looks_like_a_key_stays():
    texts = others(1)
    assert len(texts) == 200
    assert masked(texts) == texts

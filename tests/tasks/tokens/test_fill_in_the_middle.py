"""Documents cut for fill-in-the-middle: what is cut comes back, as often and where the settings say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.storage.damage import RecordedFile
from gristmill.storage.files import digest
from gristmill.tasks.tokens.encoding import encoder
from gristmill.tasks.tokens.fill_in_the_middle import FillInTheMiddle, parts, whole
from gristmill.tasks.tokens.tokenizer import train_byte_bpe

ALWAYS = FillInTheMiddle(rate=1)


@given(st.text(), st.text(), st.sampled_from([0.0, 0.5, 1.0]))
def test_the_parts_are_the_document(text, document, spm):
    settings = FillInTheMiddle(rate=1, spm=spm)
    found = parts(settings, document, text)
    assert whole(settings, found) == text
    assert [part.token for part in found] == [settings.prefix, settings.suffix, settings.middle]
    assert found == parts(settings, document, text)


def test_rates_and_places_are_those_that_are_asked_for():
    settings = FillInTheMiddle(rate=0.9, spm=0.25)
    text = "x" * 99
    found = [cut for n in range(20_000) if (cut := parts(settings, f"id {n}", text))]
    assert len(found) / 20_000 == pytest.approx(0.9, abs=0.01)
    # an SPM has nothing behind the first token; so has one PSM in fifty, cut at its beginning
    spm = [cut for cut in found if len(cut[0].text) == 0 and len(cut[2].text) + len(cut[1].text) == 99]
    assert len(spm) / len(found) == pytest.approx(0.25 + 0.75 * 2 / 100, abs=0.01)
    psm = [cut for cut in found if cut[0].text]
    # of two places drawn evenly the first is at a third, the second at two thirds
    assert np.mean([len(cut[0].text) for cut in psm]) == pytest.approx(34, abs=1)
    assert np.mean([len(cut[1].text) for cut in psm]) == pytest.approx(33, abs=1)


def test_seeds_cut_otherwise():
    text = "x" * 1000
    assert parts(ALWAYS, "a", text) != parts(FillInTheMiddle(rate=1, seed=2), "a", text)
    assert parts(ALWAYS, "a", text) != parts(ALWAYS, "b", text)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    data, _ = train_byte_bpe(iter(["def one(): return 'größe'\n"] * 20), 400, ALWAYS.tokens)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_bytes(data)
    return RecordedFile(str(path), digest(data))


def test_tokens_of_a_document_come_back_as_its_text(tokenizer):
    text = "def one():\n    return 'größe' + '日本'\n" * 3
    encode = encoder(tokenizer, [text])
    from gristmill.tasks.tokens.tokenizer import load

    known = load(tokenizer)
    for n in range(200):
        ids = encode.document(text, parts(ALWAYS, str(n), text))
        assert ids[-1] == encode.end_of_text
        at = [np.flatnonzero(ids == encode.names[token])[0] for token in (ALWAYS.prefix, ALWAYS.suffix, ALWAYS.middle)]
        assert at[0] == 0 and at == sorted(at)
        prefix, suffix, middle = (
            known.decode(ids[start + 1 : stop].tolist())
            for start, stop in zip(at, [*at[1:], len(ids) - 1], strict=True)
        )
        assert prefix + middle + suffix == text


def test_a_token_that_the_vocabulary_lacks_is_named(tokenizer):
    settings = FillInTheMiddle(rate=1, prefix="<|strange|>")
    encode = encoder(tokenizer, ["x"])
    with pytest.raises(ValueError, match=r"tokenizer.fim has <\|strange\|>, which the tokenizer does not have"):
        encode.document("x", parts(settings, "a", "x"))


def test_one_token_for_two_places_is_refused():
    with pytest.raises(ValueError, match="one token"):
        FillInTheMiddle(prefix="<a>", suffix="<a>")

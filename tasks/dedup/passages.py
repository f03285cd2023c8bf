"""Passages that occur more than once in the corpus: lines, paragraphs, spans of sentences. The first is kept."""

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from gristmill.tasks.dedup.exchange import partition_bytes
from gristmill.tasks.documents.step import CorpusStep

# What a job that finds repeats holds for a passage.
PASSAGE_BYTES = 100
# Of a passage: fewer than the lines of the web have, so that there are not more than expected.
PASSAGE_CHARACTERS = 64


class _Passages(CorpusStep):
    """What the steps that cut repeated passages have in common."""

    rule: ClassVar[str]

    min_characters: int = Field(
        10,
        ge=1,
        description="letters, numbers and symbols of a passage; shorter ones may repeat, as dates, prices and the "
        "brackets of programs do",
    )
    min_words: int = Field(
        1, ge=1, description="with a letter, mark or number; a document that is left with fewer by a cut is dropped"
    )
    partitions: int | None = Field(
        None,
        ge=1,
        le=65536,
        description="pieces of the exchange, of which a worker holds one, 70 to 150 bytes for each of its passages; "
        "null: by how much text there is, so that it holds half a gigabyte; no result depends on it",
    )

    def job_memory(self, documents: int, text_bytes: int) -> Iterator[tuple[int, str]]:
        passages = text_bytes // PASSAGE_CHARACTERS
        yield partition_bytes(passages * PASSAGE_BYTES, self.partitions), "passages of a partition"


class LineDedup(_Passages):
    """Of lines that occur more than once in the whole corpus, cut all but the first occurrence.

    After CCNet (Wenzek et al. 2020, arXiv 1911.00359, section 3.2; cc_net/dedup.py, text_normalizer.py), whose
    paragraphs are lines, and with it LLaMA (Touvron et al. 2023, arXiv 2302.13971, section 2.1). Otherwise than there:

    - the first occurrence stays; in CCNet's own run none does (`deduplicate_two_pass`: "even removing the first
      occurence"), and only within groups of its 1600 shards are lines compared;
    - keys are 64 bits of our own hash, not of SHA-1, of a text that is folded as its paper says (lower case, digits to
      0, no punctuation, no accents); its code takes off neither accents nor the punctuation of ASCII;
    - lines of fewer than `min_characters` may repeat; in CCNet the shortest are cut, too.

    It is in few recipes for a reason: for FineWeb it made models consistently worse to cut repeated lines of the whole
    corpus, also with a minimum of ten words, after near-duplicates had gone from each crawl (Penedo et al. 2024, arXiv
    2406.17557, appendix E.3 and figure 15: 77.8 % and 85 % of the tokens went). Compare before you keep it.
    """

    rule: ClassVar = "repeated_line"
    step: Literal["line_dedup"] = "line_dedup"


class ParagraphDedup(_Passages):
    """Of paragraphs that occur more than once in the whole corpus, cut all but the first occurrence.

    A paragraph is a run of lines that are not blank, however it is broken into lines; else as `line_dedup`, whose
    warning holds here, too. What CCNet and LLaMA call paragraphs are lines.
    """

    rule: ClassVar = "repeated_paragraph"
    step: Literal["paragraph_dedup"] = "paragraph_dedup"


class SentenceDedup(_Passages):
    """Cut all but the first occurrence of spans of sentences that occur more than once in the whole corpus.

    C4 (Raffel et al. 2020, arXiv 1910.10683, section 2.2): "we discarded all but one of any three-sentence span
    occurring more than once in the data set". What that means where spans overlap is taken from datatrove
    (dedup/sentence_dedup.py): all spans of three consecutive sentences of a document count, also across lines and also
    those that overlap; first occurrences are determined before anything is cut; a sentence goes if it is in any span
    that is not the first of its kind. So each sentence stays at least once. The code of C4 (c4_utils.py of
    tensorflow/datasets) compares single lines instead, in lower case: that is nearer to `line_dedup`.

    Minimal lengths are datatrove's. Otherwise than there: equal spans are folded as `line_dedup` folds them (datatrove
    takes a number of any length as one 0, and keeps marks of no script), `min_words_to_remove_span` (0) is not there,
    and sentences are those of `gristmill.tasks.kernels.scan`.

    FineWeb's spans of three lines made models worse, as its lines did: see `line_dedup`.
    """

    rule: ClassVar = "repeated_sentences"
    step: Literal["sentence_dedup"] = "sentence_dedup"
    sentences: int = Field(3, ge=1, le=64, description="of a span")
    min_characters: int = Field(1, ge=1, description="letters, numbers and symbols of a span; shorter ones may repeat")
    min_words: int = Field(
        50, ge=1, description="with a letter, mark or number; a document that is left with fewer by a cut is dropped"
    )
    min_sentences: int = Field(3, ge=1, description="a document that is left with fewer by a cut is dropped")


Step = LineDedup | ParagraphDedup | SentenceDedup

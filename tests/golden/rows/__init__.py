"""The table of rows: each runs steps or stages on the fixture by some settings."""

from dataclasses import replace

from tests.golden.rows import (
    careless,
    copies,
    documents,
    evaluation,
    expressions,
    language_model,
    models,
    near,
    rights,
    rules,
    steps,
    ties,
    tokens,
    training,
)
from tests.golden.rows.row import Row

# Left to the long tests: what they add to the others of their step is less than what they take.
SLOW = frozenset(
    """
    opencoder-each stack_v2-each gopher_repetition-each gopher_repetition-each-dclm gopher_quality-each-dclm
    substrings-short substrings-drop near-source near-partly-contained near-oldest near-characters near-best
    near-components-oldest near-few-comparisons near-none earlier-contained lost-earlier lost-near pairs-components
    content-source content-oldest content-longest lines-short sentences-one paragraphs-short url-oldest line-ranges
    grouped-quantiles grouped-rehydrated grouped-edges grouped-expression grouped-upsampled mixture-unimax
    mixture-phases mixture-packed-proportional tokens-bytes tokens-unigram tokens-taken tokens-taken-down halves-later
    search-dropped words-taken-down export-lines export-chosen perplexity-named perplexity-lines quality-top
    heldout-third heldout-few evaluation-cut evaluation-clean clean-strict clean-report clean-ngrams-long
    clean-cut-few losses-languages losses-sources tied-language tied-topic tied-mixed_languages tied-quality
    tied-fineweb_quality tied-textbook tied-madlad tied-toxicity-lines semantic-oldest diversified-longest
    quality_bucket-scored selection-prefixes few-justext texts-as-they-are mixed_languages-every takedowns-two
    """.split()
)
_ALL: tuple[Row, ...] = (
    *documents.ROWS,
    *rules.ROWS,
    *steps.ROWS,
    *rights.ROWS,
    *language_model.ROWS,
    *expressions.ROWS,
    *copies.ROWS,
    *near.ROWS,
    *models.ROWS,
    *ties.ROWS,
    *evaluation.ROWS,
    *tokens.ROWS,
    *training.ROWS,
    *careless.ROWS,
)
ROWS = tuple(replace(row, slow=row.slow or row.name in SLOW) for row in _ALL)


def covering(names: set[str]) -> tuple[Row, ...]:
    """The rows that cover one of some steps or stages."""
    return tuple(row for row in ROWS if names & {*row.covers})

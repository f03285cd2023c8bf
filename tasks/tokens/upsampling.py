"""How often documents are repeated by their quality: the truncated power curve of OLMo 3 (arXiv 2512.13961).

Section 3.4.4 and appendix A.2.4: quality is a place x in [0, 1] among the tokens of a topic, the lowest first. What is
below `a` is discarded, and above it a token is read C (x - a)^p exp(l (x - a)) times. The curve gives as many tokens as
the topic is to give, and the best range, 5% of the tokens there, is read 7 times on average at most; a is 0.4. Any p
and l with these properties will do there, and which were taken is not published. Here l is 0, and p the largest up to
MOST_POWER with which the best range keeps to its limit, so that a curve is one.
"""

from collections.abc import Sequence

from gristmill.tasks.tokens.mixture import Upsampling

MOST_POWER = 8.0
_HALVINGS = 60  # of an interval of powers: to less than the rounding of a float


def copies(settings: Upsampling, tokens: Sequence[int], wanted: float) -> list[float]:
    """How often each range is read, so that `wanted` tokens are. `tokens`: of the ranges, the lowest first; there are
    some. The best range is read `max_copies` times at most, unless a power is given. Raises ValueError for more tokens
    than `most` gives."""
    whole = sum(tokens)
    if wanted > most(settings, whole) * (1 + 1e-9):
        raise ValueError(
            f"{wanted:,.0f} tokens are more than {whole:,} give where the lowest {settings.discard:.0%} are discarded "
            f"and {settings.max_copies:g} copies read at most"
        )
    power = settings.power
    if power is None:
        low, high = 0.0, MOST_POWER
        if _copies(high, settings.discard, tokens, wanted)[-1] > settings.max_copies:
            for _ in range(_HALVINGS):
                power = (low + high) / 2
                steep = _copies(power, settings.discard, tokens, wanted)[-1] > settings.max_copies
                low, high = (low, power) if steep else (power, high)
            high = low
        power = high
    return _copies(power, settings.discard, tokens, wanted)


def most(settings: Upsampling, tokens: float) -> float:
    """How many tokens a group of so many can give: those that are not discarded, `max_copies` times."""
    return settings.max_copies * (1 - settings.discard) * tokens


def _copies(power: float, discard: float, tokens: Sequence[int], wanted: float) -> list[float]:
    """Of each range the mean of the curve over it. The integral up to x is the share of the tokens from below x."""
    whole, found, place = sum(tokens), [], 0
    before = 0.0
    for count in tokens:
        place += count
        x = place / whole
        share = ((x - discard) / (1 - discard)) ** (power + 1) if x > discard else 0.0
        found.append(wanted * (share - before) / count if count else 0.0)
        before = share
    return found

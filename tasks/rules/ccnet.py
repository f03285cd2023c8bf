"""CCNet's rule on length: the step `ccnet`. Separate: a rule set is a module."""

from __future__ import annotations

from typing import Literal

import numpy as np

from gristmill.tasks import kernels
from gristmill.tasks.rules.rule import RuleStep, rule, rule_set
from gristmill.tasks.rules.rule import measure as measure

SOURCE = "Wenzek et al. 2019; definition: cc_net mine.py, min_len"
RULES = (
    rule(
        "characters",
        "characters",
        "Characters of the text. Dolma 3 asks for 150 (datamap-rs, all_dressed_config.yaml).",
        low=300,
    ),
)


@rule_set(SOURCE, RULES)
class CCNet(RuleStep):
    """CCNet's length rule (Wenzek et al. 2019, arXiv 1911.00359; `min_len` in `cc_net/mine.py`)."""

    step: Literal["ccnet"] = "ccnet"


def characters(text: kernels.scan.Scan) -> np.ndarray:
    return text.chars

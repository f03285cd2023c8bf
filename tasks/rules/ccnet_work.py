"""The rules of `tasks.rules.ccnet`, which describes them, as functions."""

import numpy as np

from tasks.kernels.scan import Scan
from tasks.rules.rule_work import measure as measure


def characters(text: Scan) -> np.ndarray:
    return text.chars

"""The rules of `gristmill.tasks.rules.ccnet`, which describes them, as functions."""

import numpy as np

from gristmill.tasks.kernels.scan import Scan
from gristmill.tasks.rules.rule_work import measure as measure


def characters(text: Scan) -> np.ndarray:
    return text.chars

"""CCNet's rule on length (Wenzek et al. 2019, arXiv 1911.00359), as `cc_net/mine.py` has it (`min_len`)."""

import numpy as np

from tasks.kernels.scan import Scan
from tasks.rules.rule import Rules

rules = Rules("ccnet", "Wenzek et al. 2019; definition: cc_net mine.py, min_len")


@rules.rule(low=300, unit="characters")
def characters(text: Scan) -> np.ndarray:
    """Characters of the text. Dolma 3 asks for 150 (datamap-rs, all_dressed_config.yaml)."""
    return text.chars


CCNet = rules.step("CCNet")

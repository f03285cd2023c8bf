"""CCNet's rule on length: the step `ccnet`."""

from typing import ClassVar, Literal

from gristmill.tasks.rules.rule import RuleStep, rule, rule_set

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
    """CCNet's rule on length (Wenzek et al. 2019, arXiv 1911.00359), as `cc_net/mine.py` has it (`min_len`)."""

    work: ClassVar = "gristmill.tasks.rules.ccnet_work"

    step: Literal["ccnet"] = "ccnet"

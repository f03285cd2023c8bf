"""Every rule that a rule set declares has a function in its work module, and every function of a rule is declared."""

import inspect
import unicodedata
from collections import Counter
from types import ModuleType

import pyarrow as pa
import pytest

from gristmill.flows.recipe.steps import BUILT_IN
from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.step import work_of
from gristmill.tasks.kernels import phrases
from gristmill.tasks.rules.c4 import C4, PHRASE_BYTES
from gristmill.tasks.rules.gopher_quality import is_one_word, is_surely_one_word
from gristmill.tasks.rules.rule import RuleStep, measure, rule, rule_set

RULE_SETS = [kind for kind in BUILT_IN.values() if issubclass(kind, RuleStep)]


def functions(work: ModuleType) -> list[str]:
    """Names of a module's own public functions, or parts of them, whose first parameter is the scan of a batch."""
    found = []
    for name, function in vars(work).items():
        own = getattr(getattr(function, "func", function), "__module__", None) == work.__name__
        if own and callable(function) and not inspect.isclass(function) and not name.startswith("_"):
            if next(iter(inspect.signature(function).parameters), None) == "text":
                found.append(name)
    return found


def test_there_are_rule_sets():
    assert len(RULE_SETS) >= 7


@pytest.mark.parametrize("kind", RULE_SETS, ids=lambda kind: kind.__name__)
def test_rules_and_functions_are_the_same(kind):
    assert Counter(functions(work_of(kind))) == Counter(rule.name for rule in kind.rules)


@pytest.mark.parametrize("kind", RULE_SETS, ids=lambda kind: kind.__name__)
def test_a_rule_gives_a_signal_and_thresholds_of_its_name(kind):
    name = kind.model_fields["step"].default
    assert [signal.name for signal in kind.signals] == [f"{name}_{rule.name}" for rule in kind.rules]
    for declared, signal in zip(kind.rules, kind.signals, strict=True):
        assert signal.kind == ("int64" if declared.kind is int else "float64")
        assert declared.ends and set(declared.ends) <= {f"min_{declared.name}", f"max_{declared.name}"}
        for end, value in declared.ends.items():
            assert kind.model_fields[end].default == value
            assert kind.model_fields[end].description.endswith("null: no limit.")


def test_a_rule_without_a_function_is_named():
    @rule_set("this test", (rule("absent", "words", "Nothing.", high=1),))
    class Absent(RuleStep):
        step: str = "absent_rules"

    batch = Batch(pa.table({"id": ["a"], "text": pa.array(["text"], pa.large_string())}))
    with pytest.raises(AttributeError, match=f"{__name__} has no function `absent`.*absent_rules"):
        measure(Absent(), batch)


def test_letters_that_never_part_a_word():
    """The kernels agree, for each of these letters, alone and beside others."""
    letters = [chr(code) for code in (*range(0x250), *range(0x370, 0x530)) if chr(code).isalpha()]
    words = [*letters, *(letter * 2 for letter in letters), *(f"a{letter}ж" for letter in letters)]
    assert len(letters) > 800 and all(map(is_surely_one_word, words))
    assert [word for word in words if not is_one_word(word)] == []
    for other in ("漢字", "ไทย", "two words", "it's", "", "-", "3"):
        assert not is_surely_one_word(other), unicodedata.name(other[:1], "nothing")


def test_the_longest_phrase_of_c4_is_that_of_the_kernel():
    longest = "x" * PHRASE_BYTES
    assert C4(policy=(longest,)).policy == (longest,)
    phrases.automaton((longest,))
    for wrong in (longest + "x", ""):
        with pytest.raises(ValueError, match="must have 1 to 64"):
            C4(policy=(wrong,))
        with pytest.raises(ValueError, match="must have 1 to 64"):
            phrases.automaton((wrong,))

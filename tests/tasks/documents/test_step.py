"""What settings and steps are: keys of older recipes, slices, thresholds, and what a class may declare."""

from typing import ClassVar, Literal

import pyarrow as pa
import pytest
from pydantic import Field, ValidationError

from gristmill.storage.schema import DOCUMENTS
from gristmill.tasks.documents.measure import field, schema
from gristmill.tasks.documents.step import DOCUMENT_COLUMNS, Bound, DocumentStep, EditStep, Settings, Signal, work_of


class Range(Settings):
    low: int = 0
    high: int = Field(9, ge=0)


class Search(Range):
    renamed: ClassVar = {"limit": "`high`"}
    where: str = "here"


class Long(DocumentStep):
    step: Literal["long"] = "long"
    unit: str = "characters"
    min_size: int = 10
    signals: ClassVar = (Signal("long_size", "int32", "characters", "this test", description="Of a test."),)
    signal_fields: ClassVar = ("unit",)

    def decisions(self):
        return [Bound("size", "long_size", low=self.min_size)]


def test_a_key_of_older_recipes_is_an_error_that_names_the_new_one():
    with pytest.raises(ValidationError, match="the key `limit` is no longer used; use instead: `high`"):
        Search.model_validate({"limit": 3})
    assert Search.model_validate({"high": 3}).high == 3


def test_a_part_holds_the_fields_of_the_base_class_and_no_more():
    part = Search(low=1, high=2, where="there").part(Range)
    assert type(part) is Range and part == Range(low=1, high=2)
    with pytest.raises(TypeError, match="Search is not a base class of Range"):
        Range().part(Search)


def test_a_job_that_measures_sees_thresholds_at_their_defaults_only():
    step = Long(unit="words", min_size=99)
    assert step.measuring() == Long(unit="words")
    assert step.measuring().measuring() == step.measuring() != step


def test_the_columns_that_documents_have_are_those_of_the_schema():
    assert list(DOCUMENT_COLUMNS) == DOCUMENTS.names


@pytest.mark.parametrize(
    ("kind", "type"),
    [
        ("string", pa.string()),
        ("bool", pa.bool_()),
        ("int32", pa.int32()),
        ("int64", pa.int64()),
        ("float32", pa.float32()),
        ("float64", pa.float64()),
    ],
)
def test_a_signal_is_a_column_with_its_unit_and_source(kind, type):
    column = field(Signal("size", kind, "words", "a paper", description="Of a test."))
    assert (column.name, column.type, column.metadata) == ("size", type, {b"unit": b"words", b"source": b"a paper"})


def test_a_signal_of_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="has the kind 'int'; use one of string, bool"):
        Signal("size", "int", "words", "a paper", description="Of a test.")


def test_the_work_of_a_class_is_the_module_that_it_names_or_its_own():
    assert work_of(Long()).__name__ == __name__
    assert schema(Long).names == ["long_size"]

    class Elsewhere(Long):
        work: ClassVar = "gristmill.tasks.documents.measure"

    assert work_of(Elsewhere).__name__ == "gristmill.tasks.documents.measure"


def test_a_threshold_without_a_default_is_refused():
    with pytest.raises(TypeError, match="the threshold max_hits needs a default"):

        class Hits(DocumentStep):
            step: Literal["hits"] = "hits"
            max_hits: int


def test_signal_fields_are_fields():
    with pytest.raises(TypeError, match="signal_fields lists word, which are not fields"):

        class Hits(DocumentStep):
            step: Literal["hits"] = "hits"
            signal_fields: ClassVar = ("word",)


def test_an_edit_step_declares_the_characters_that_it_leaves():
    with pytest.raises(TypeError, match="signals needs cut_characters"):

        class Cut(EditStep):
            step: Literal["cut"] = "cut"

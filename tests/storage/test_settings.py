"""Settings for which true and false are no numbers: against what pydantic takes by itself."""

from typing import Any, Literal

import pytest
from pydantic import BaseModel, ValidationError

from gristmill.storage.settings import CheckedSettings


class Lax(BaseModel):
    count: int


def test_pydantic_itself_takes_them_for_one_and_zero():
    assert [Lax.model_validate({"count": each}).count for each in (True, False)] == [1, 0]


class Inner(CheckedSettings):
    share: float = 0.5
    on: bool = False


class Outer(CheckedSettings):
    count: int | None = None
    bounds: tuple[float, ...] = ()
    weights: dict[str, float] = {}
    name: str = ""
    inner: Inner = Inner()
    either: bool | float = 1.0
    anything: Any = None
    mode: Literal["off", True] = "off"


@pytest.mark.parametrize(
    "given",
    [
        {"count": True},
        {"count": False},
        {"bounds": [1, False]},
        {"weights": {"web": True}},
        {"inner": {"share": False}},
    ],
)
def test_true_and_false_are_no_numbers(given):
    with pytest.raises(ValidationError, match="true or false, which is how YAML reads on, off, yes and no"):
        Outer.model_validate(given)


@pytest.mark.parametrize(
    "given",
    [
        {"inner": {"on": True}},
        {"either": False},
        {"anything": {"a": True}},
        {"mode": True},
        {"count": 1, "bounds": [0, 1], "weights": {"web": 1}},
        {"count": None},
    ],
)
def test_where_they_are_meant_they_are_taken(given):
    assert Outer.model_validate(Outer.model_validate(given).model_dump()) == Outer.model_validate(given)

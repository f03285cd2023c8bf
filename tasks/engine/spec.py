"""Declarations of stages. Equal declarations have equal keys, and stages with equal keys have equal contents."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import Any, Protocol
from unicodedata import unidata_version

import orjson
from pydantic import BaseModel

from gristmill.storage import layout
from gristmill.storage.settings import KEY
from gristmill.tasks.engine import remakes
from gristmill.tasks.engine.code_version import code_version, data_digest, releases

# The largest number of inputs that a manifest lists. More are passed as one digest.
MAX_INPUTS = 256


class FinishedInput(Protocol):
    """A finished stage that another one reads. `label`: `<name>-<key>` of its folder; `contents`: its logical digest
    (`gristmill.storage.contents`)."""

    @property
    def label(self) -> str: ...

    @property
    def contents(self) -> str: ...


Inputs = Mapping[str, FinishedInput | str]


@dataclass(frozen=True, kw_only=True)
class Work:
    """Code, libraries and package data that the contents of a stage depend on.

    In the key: `versions`, of the steps whose work the stage does, by name (for code of users that declares no version,
    its digest); `libraries`, the distributions whose output the stage stores, since another release may give another
    one; `data`, files that distributions carry (`package:path`); `unicode`, whether the contents depend on how Python
    classifies characters.

    Not in the key: `modules`, whose code the manifest records in addition to the body's; `steps`, the steps of the
    recipe that need the stage, by which a user can name it.
    """

    versions: Mapping[str, int | str] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    unicode: bool = True
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StageSpec:
    """The declaration of a stage.

    `name`: of its folder and in its key.
    `version`: an integer that is raised when the same record and inputs give other contents.
    `body(phases, record, places)`: maps the jobs and returns the result that the manifest records. It is a module
    function, so that it knows only its arguments. The first line of its docstring is shown when the stage starts.
    `record`: everything that its jobs may read of a recipe, a frozen pydantic model.
    `inputs`: by name the finished stages that it reads, or digests of files.
    `places`: where the inputs are, as addresses and numbers, or a function that returns them when the stage is made.
    `work`: see `Work`.
    `at`: a folder for the stage outside the home.
    `resumes`: whether other code may resume the unfinished stage, as a training resumes from its checkpoint.

    The key is the hash of name, version, record, inputs and the part of `work` that decides. An input stage counts by
    its contents and not by how it was made. Places, `at` and `resumes` are not in the key.

    Raises TypeError for a body that closes over something, a record that can change, or places that hold settings;
    ValueError for more than MAX_INPUTS inputs.
    """

    name: str
    version: int
    body: Callable[[Any, Any, Any], dict[str, Any]]
    record: BaseModel
    inputs: Inputs
    places: Any = None
    work: Work = field(default_factory=Work)
    at: str = ""
    resumes: bool = False

    def __post_init__(self) -> None:
        if getattr(self.body, "__closure__", None) is not None or self.body.__name__ != self.body.__qualname__:
            raise TypeError(
                f"the body of the stage {self.name}, {self.body.__qualname__}, is not a module function: "
                "values in its closure would not be in a key"
            )
        if not (isinstance(self.record, BaseModel) and self.record.model_config.get("frozen")):
            raise TypeError(f"the record of the stage {self.name} is not a frozen pydantic model: {self.record!r}")
        if len(self.inputs) > MAX_INPUTS:
            raise ValueError(f"the stage {self.name} has {len(self.inputs)} inputs: pass one digest of them")
        _check_record(self.name, self.record)
        if not callable(self.places):
            _check_places(self.name, self.places)

    def placed(self) -> Any:
        """The places, found now if they were not yet. Raises TypeError for places that hold settings."""
        places = self.places() if callable(self.places) else self.places
        _check_places(self.name, places)
        return places

    @property
    def roots(self) -> tuple[str, ...]:
        """The modules whose imports are followed for the code digest."""
        return tuple(sorted({self.body.__module__, *self.work.modules}))

    @property
    def summary(self) -> str:
        """What the stage does, in a few words: the first line of the body's docstring, without its full stop."""
        lines = (self.body.__doc__ or "").strip().splitlines()
        return lines[0].rstrip(".") if lines else ""

    @cached_property
    def code(self) -> str:
        """The digest of the code that would make the stage now."""
        return code_version(self.roots)

    @cached_property
    def key(self) -> str:
        """16 hexadecimal characters."""
        record = self.record.model_dump(mode="json", context={KEY: True})
        whole = {**self.identity, "record": record}
        return hashlib.sha256(orjson.dumps(whole, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]

    @cached_property
    def identity(self) -> dict[str, Any]:
        """The value whose hash is the key, without the folders of local files."""
        return {
            "stage": self.name,
            "version": self.version,
            "versions": dict(self.work.versions),
            "libraries": releases(self.work.libraries),
            "data": {address: data_digest(address) for address in sorted(set(self.work.data))},
            "unicode": unidata_version if self.work.unicode else "",
            "record": self.record.model_dump(mode="json"),
            "inputs": {
                name: given if isinstance(given, str) else given.contents for name, given in self.inputs.items()
            },
        }

    @property
    def read(self) -> dict[str, str]:
        """The labels of the stages that it reads, by their role."""
        return {name: given.label for name, given in self.inputs.items() if not isinstance(given, str)}

    def folder(self, home: str) -> str:
        """Where the stage is, or will be made. A stage that was begun again has a folder with another key."""
        return self.at or layout.stage_folder(home, self.name, remakes.current(home, self.name, self.key))

    def label(self, home: str) -> str:
        """`<name>-<key>` of that folder."""
        return f"{self.name}-{self.key}" if self.at else self.folder(home).rpartition("/")[2]


def digest(values: Mapping[str, str] | list[str]) -> str:
    """One input that stands for many: xxh3-128 of all of them, hexadecimal."""
    return layout.digest_of(values)


def _check_record(stage: str, value: Any) -> None:
    """Raise TypeError for a part of a record that a job could read and the key does not contain."""
    if isinstance(value, BaseModel):
        hidden = [name for name, field in type(value).model_fields.items() if field.exclude]
        if hidden := [*hidden, *type(value).__private_attributes__]:
            raise TypeError(
                f"the record of the stage {stage} has {type(value).__name__}.{hidden[0]}, which is excluded "
                "from its hash: make it a field that is not excluded"
            )
        for name in type(value).model_fields:
            _check_record(stage, getattr(value, name))
    elif isinstance(value, Mapping):
        for each in value.values():
            _check_record(stage, each)
    elif isinstance(value, list | tuple):
        for each in value:
            _check_record(stage, each)


def _check_places(stage: str, value: Any) -> None:
    if value is None or isinstance(value, str | int):
        return
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    elif is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, field.name) for field in fields(value)]
    elif not isinstance(value, list | tuple):
        raise TypeError(
            f"the places of the stage {stage} have {type(value).__name__}: only addresses and numbers are "
            "allowed; move what decides the result into the record"
        )
    for each in value:
        _check_places(stage, each)

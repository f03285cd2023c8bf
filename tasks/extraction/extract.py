"""The step `extract`: from records to documents, the main text of each page."""

import re
from importlib import import_module
from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from gristmill.tasks.documents.step import Step
from gristmill.tasks.guard.limits import Limits

# What besides resiliparse, which detects types and encodings for all engines, decides an engine's texts.
_LIBRARIES = {"trafilatura": ("lxml", "trafilatura"), "justext": ("justext", "lxml")}


ENGINE_NAMES = ("blocks", "resiliparse", "trafilatura", "justext", "plain")
_OF_USERS = re.compile(r"(\w+(?:\.\w+)*):\w+")


class Extract(Step):
    """Main text of HTML pages; `text/plain` is taken as it is, anything else is dropped by content type."""

    work: ClassVar = "gristmill.tasks.extraction.extract_work"

    step: Literal["extract"] = "extract"
    engine: str = Field(
        "blocks",
        description=f"{', '.join(ENGINE_NAMES)}, or one of your own (module:function). blocks: our own scan and block "
        "classifier; plain: all text of the page",
        json_schema_extra={"examples": [*ENGINE_NAMES]},
    )
    format: Literal["plain", "markdown"] = Field(
        "plain", description="markdown: headings, emphasis, code and tables are marked; by the engine blocks alone"
    )
    max_bytes: int = Field(10_000_000, gt=0, description="a larger payload is dropped as `too_large`")
    verify_digests: bool = Field(False, description="drop records that differ from their own digest")
    limits: Limits = Field(Limits(), description="time and memory that one page may take")

    @field_validator("engine")
    @classmethod
    def _is_engine(cls, engine: str) -> str:
        if engine not in ENGINE_NAMES and not _OF_USERS.fullmatch(engine):
            raise ValueError(
                f"is {engine!r}; give one of {', '.join(ENGINE_NAMES)}, or one of your own as module:function"
            )
        return engine

    @model_validator(mode="after")
    def _format_of_engine(self) -> "Extract":
        if self.format == "markdown" and self.engine != "blocks":
            raise ValueError(f"format: markdown is given by the engine blocks alone, not by {self.engine}")
        return self

    @property
    def libraries(self) -> tuple[str, ...]:  # type: ignore[override]  # they depend on the settings
        own = [getattr(import_module(module), "LIBRARIES", ()) for module in self.modules]
        return ("fastwarc", "resiliparse", *_LIBRARIES.get(self.engine, ()), *(name for names in own for name in names))

    @property
    def modules(self) -> tuple[str, ...]:  # type: ignore[override]
        match = _OF_USERS.fullmatch(self.engine)
        return (match[1],) if match else ()

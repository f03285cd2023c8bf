"""The step `extract`: from records to documents, the main text of each page."""

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from gristmill.tasks.documents.step import Step
from gristmill.tasks.guard.limits import Limits

# What besides resiliparse, which detects types and encodings for all engines, decides an engine's texts.
_LIBRARIES = {"trafilatura": ("lxml", "trafilatura"), "justext": ("justext", "lxml")}


class Extract(Step):
    """Main text of HTML pages; `text/plain` is taken as it is, anything else is dropped by content type."""

    work: ClassVar = "gristmill.tasks.extraction.extract_work"

    step: Literal["extract"] = "extract"
    engine: Literal["blocks", "resiliparse", "trafilatura", "justext", "plain"] = Field(
        "blocks", description="blocks: our own scan and block classifier; plain: all text of the page"
    )
    format: Literal["plain", "markdown"] = Field(
        "plain", description="markdown: headings, emphasis, code and tables are marked; by the engine blocks alone"
    )
    max_bytes: int = Field(10_000_000, gt=0, description="a larger payload is dropped as `too_large`")
    verify_digests: bool = Field(False, description="drop records that differ from their own digest")
    limits: Limits = Field(Limits(), description="time and memory that one page may take")

    @model_validator(mode="after")
    def _format_of_engine(self) -> "Extract":
        if self.format == "markdown" and self.engine != "blocks":
            raise ValueError(f"format: markdown is given by the engine blocks alone, not by {self.engine}")
        return self

    @property
    def libraries(self) -> tuple[str, ...]:  # type: ignore[override]  # they depend on the settings
        return ("fastwarc", "resiliparse", *_LIBRARIES.get(self.engine, ()))

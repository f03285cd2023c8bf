"""Pages that every machine holds which installed this project, as WARC files: input without a network.

Module pages as pydoc renders them, long descriptions, readmes, changelogs, licenses and HTML files of the
installed distributions, chapters of the language reference. Nothing is invented and nothing is fetched: the
addresses are under `.invalid`, where nothing can be served. See `harvest`.
"""

import fcntl
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import orjson
from pydantic import BaseModel, ConfigDict, Field

from gristmill.flows.demo.modules import LostModule, ModulePage, render, standard_library, submodules
from gristmill.flows.demo.packages import (
    Page,
    canonical,
    installed,
    is_reference,
    main_text,
    manual_pages,
    pages,
    service_pages,
    site,
    standard_library_files,
    write_archive,
    write_list,
)

__all__ = ["HarvestReport", "HarvestSettings", "KindReport", "Progress", "harvest"]

VERSION = 2
"""Raise it when the same environment shall give other files."""

KINDS = ("modules", "packages", "reference")

Progress = Callable[[int, int], None]

# Rich in documentation, quick to import, and importing them does nothing but define things.
DOCUMENTED = tuple(
    "alembic attr babel click dateutil docker flask fsspec httpx hypothesis jinja2 joblib lxml mako markdown "
    "mpmath networkx oauthlib packaging pathspec requests rich setuptools tornado typer urllib3 websockets "
    "werkzeug yaml".split()
)


class HarvestSettings(BaseModel):
    """What is harvested. All of it enters the fingerprint of the result."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    packages: tuple[str, ...] = Field(
        DOCUMENTED, description="packages whose module pages are rendered, if they are installed"
    )
    library: tuple[str, ...] | None = Field(None, description="modules of the standard library; None: all public ones")
    distributions: tuple[str, ...] | None = Field(
        None, description="names of distributions whose files are read; None: all installed ones"
    )
    manual: bool = Field(
        True, description="include the language reference, the interpreter's own texts and botocore's services"
    )
    search_path: tuple[str, ...] = Field((), description="folders to search before those of this interpreter")
    seconds_per_module: float = Field(
        30.0, gt=0, description="maximum time per module (seconds); a slower module is left out"
    )
    max_page_bytes: int = Field(
        200_000, gt=0, description="maximum length of a page (bytes); longer pages are left out"
    )
    pages_per_file: int = Field(200, gt=0)
    reference_share: float = Field(0.6, ge=0, le=1, description="fraction of the edited prose that becomes reference")


class KindReport(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    pages: int
    payload_bytes: int
    text_bytes: int = Field(description="main text (bytes of UTF-8)")
    files: tuple[str, ...]


class HarvestReport(BaseModel):
    """What the folder holds, and which modules gave no page and why."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    fingerprint: str
    python: str
    kinds: dict[str, KindReport]
    lost: dict[str, str]
    bytes_by_file: dict[str, int]

    @property
    def pages(self) -> int:
        return sum(kind.pages for kind in self.kinds.values())


def harvest(
    out: Path,
    *,
    processes: int = 2,
    progress: Progress | None = None,
    settings: HarvestSettings | None = None,
) -> HarvestReport:
    """Write `<kind>-NNNNN.warc.gz` for each kind, `reference.jsonl`, `warc.paths.gz` and `harvest.json` into the folder
    `out`.

    Kinds: `modules` (pydoc pages), `packages` (descriptions, readmes, licenses, HTML, services), `reference`
    (edited prose taken out of the other two; `reference.jsonl` has its `url` and `text`). The same environment and
    settings give the same bytes, whatever `processes`, the number of children that import modules. A finished harvest
    of the same environment is returned at once. `progress(done, total)` counts modules, from several threads.

    The folder appears whole or not at all. Raises FileExistsError if `out` holds anything but a harvest.
    Held in memory: all pages.
    """
    settings = settings or HarvestSettings()
    out = Path(out).absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    with (out.parent / f".{out.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        environment = _environment(settings)
        if (report := _finished(out, environment)) is not None:
            return report
        partial = out.parent / f".{out.name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        report = _write(partial, environment, *_gather(settings, processes, progress), settings)
        if out.exists():
            shutil.rmtree(out)
        os.rename(partial, out)
    return report


def _environment(settings: HarvestSettings) -> str:
    """Fingerprint of all that the pages depend on."""
    facts = {
        "harvest": VERSION,
        "python": platform.python_version(),
        "platform": f"{sys.platform} {platform.machine()}",
        "installed": [f"{dist.name}=={dist.version}" for dist in installed(settings.search_path)],
        "settings": settings.model_dump(mode="json"),
    }
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _finished(out: Path, fingerprint: str) -> HarvestReport | None:
    if not out.exists() or not any(out.iterdir()):
        return None
    record = out / "harvest.json"
    if not record.exists():
        raise FileExistsError(f"{out} contains other files: choose an empty or a new folder")
    try:
        report = HarvestReport.model_validate_json(record.read_bytes())
    except ValueError:
        return None  # of another version: its place is taken by a new one
    whole = all((out / n).is_file() and (out / n).stat().st_size == size for n, size in report.bytes_by_file.items())
    return report if report.fingerprint == fingerprint and whole else None


def _gather(settings: HarvestSettings, processes: int, progress: Progress | None) -> tuple[list[Page], dict[str, str]]:
    library = standard_library() if settings.library is None else list(settings.library)
    path = [*settings.search_path, *sys.path]
    groups = [library, *(submodules(package, path) for package in settings.packages)]
    total, done = sum(map(len, groups)), 0

    def on_done(modules: int) -> None:
        nonlocal done
        done += modules
        if progress is not None:
            progress(done, total)

    outcomes = render(
        [group for group in groups if group],
        search_path=settings.search_path,
        processes=processes,
        limit_seconds=settings.seconds_per_module,
        max_page_bytes=settings.max_page_bytes,
        on_done=on_done,
    )
    lost = {outcome.module: outcome.reason for outcome in outcomes if isinstance(outcome, LostModule)}
    pages_by_kind = [
        Page(
            f"{site('modules', outcome.module.partition('.')[0])}{outcome.module}.html",
            "modules",
            "text/html; charset=utf-8",
            outcome.html,
            edited=True,
        )
        for outcome in outcomes
        if isinstance(outcome, ModulePage)
    ]
    dists = installed(settings.search_path)
    if settings.distributions is not None:
        wanted = {canonical(name) for name in settings.distributions}
        dists = [dist for dist in dists if canonical(dist.name) in wanted]
    pages_by_kind += pages(dists, settings.max_page_bytes)
    if settings.manual:
        pages_by_kind += manual_pages()
        pages_by_kind += standard_library_files(settings.max_page_bytes)
        pages_by_kind += service_pages()
    return sorted(pages_by_kind, key=lambda page: page.url), lost


def _write(
    folder: Path, fingerprint: str, pages: list[Page], lost: dict[str, str], settings: HarvestSettings
) -> HarvestReport:
    filed: dict[str, list[Page]] = {kind: [] for kind in KINDS}
    text_bytes = dict.fromkeys(KINDS, 0)
    prose: list[bytes] = []
    for page in pages:
        text = main_text(page)
        kind = page.kind
        if is_reference(page, text, settings.reference_share):
            kind = "reference"
            prose.append(orjson.dumps({"url": page.url, "text": text.encode("utf-8", "replace").decode()}))
        filed[kind].append(page)
        text_bytes[kind] += len(text.encode("utf-8", "replace"))
    kinds = {}
    for kind, members in filed.items():
        # In turns, so that the files of a kind are alike in size and content.
        count = -(-len(members) // settings.pages_per_file)
        names = tuple(f"{kind}-{i:05d}.warc.gz" for i in range(count))
        for i, name in enumerate(names):
            write_archive(folder / name, members[i::count])
        kinds[kind] = KindReport(
            pages=len(members),
            payload_bytes=sum(len(page.payload) for page in members),
            text_bytes=text_bytes[kind],
            files=names,
        )
    (folder / "reference.jsonl").write_bytes(b"".join(line + b"\n" for line in prose))
    write_list(folder / "warc.paths.gz", [name for kind in kinds.values() for name in kind.files])
    report = HarvestReport(
        fingerprint=fingerprint,
        python=platform.python_version(),
        kinds=kinds,
        lost=lost,
        bytes_by_file={file.name: file.stat().st_size for file in sorted(folder.iterdir())},
    )
    (folder / "harvest.json").write_text(report.model_dump_json(indent=1) + "\n")
    return report

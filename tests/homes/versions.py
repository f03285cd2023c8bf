"""The versions of stages and steps that the code declares, what changed with each, and which stages of the packed homes
have other ones: the tables of docs/reference/versions.md.

python -m tests.homes.versions    # writes them there
"""

import ast
import importlib
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from gristmill.flows.recipe.steps import BUILT_IN
from gristmill.flows.stages.dedup.earlier_crawls import BANDING, SIGNING
from gristmill.flows.stages.documents import JSONL
from gristmill.flows.stages.language_model import STRATA

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/versions.md"
PACKED = sorted(Path(__file__).parent.glob("*.tar.xz"))
# Versions that several stages have, or that a stage names beside its steps, by the module that declares them.
SHARED = {"signing": SIGNING, "banding": BANDING, "jsonl": JSONL, "strata": STRATA}
_BEGIN, _END = "<!-- versions: python -m tests.homes.versions -->\n", "<!-- end of versions -->\n"


@dataclass(frozen=True)
class Declared:
    """`changes`: what changed with each version above 1, as the comment beside it says."""

    name: str
    version: int
    changes: Mapping[int, str]


def stages() -> dict[str, Declared]:
    """The stages, by name. Raises LookupError for a version above 1 of a stage whose name the code makes."""
    return {each.name: each for path in sorted((ROOT / "flows").rglob("*.py")) for each in _stages(path)}


def steps() -> dict[str, Declared]:
    """The steps, by the name that a recipe and a manifest use."""
    return {name: Declared(name, kind.work_version, _of_class(kind)) for name, kind in BUILT_IN.items()}


def _stages(path: Path) -> Iterator[Declared]:
    lines = path.read_text(encoding="utf-8").splitlines()
    for node in ast.walk(ast.parse("\n".join(lines))):
        if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "StageSpec"):
            continue
        values = {keyword.arg: keyword.value for keyword in node.keywords}
        name, version = values["name"], values["version"]
        number, changes = _number(path, version), changes_beside(lines, version.lineno)
        if isinstance(name, ast.Constant):
            yield Declared(str(name.value), number, changes)
        elif number != 1:
            raise LookupError(f"{path}: the name of a stage of version {number} is {ast.unparse(name)}")


def _number(path: Path, version: ast.expr) -> int:
    if isinstance(version, ast.Constant):
        return int(version.value)  # type: ignore[arg-type]
    module = ".".join(("gristmill", *path.relative_to(ROOT).with_suffix("").parts))
    return int(getattr(importlib.import_module(module), ast.unparse(version)))


def _of_class(kind: type) -> dict[int, str]:
    """Of a step that is the class itself, or another name of it: its own line, or that of a base class."""
    for base in kind.__mro__:
        if "work_version" in vars(base):
            path = ROOT / (base.__module__.removeprefix("gristmill.").replace(".", "/") + ".py")
            lines = path.read_text(encoding="utf-8").splitlines()
            start = next(number for number, line in enumerate(lines, 1) if re.match(rf"class {base.__name__}\b", line))
            at = next(n for n, line in enumerate(lines[start:], start + 1) if line.strip().startswith("work_version"))
            return changes_beside(lines, at)
    return {}


def changes_beside(lines: list[str], number: int) -> dict[int, str]:
    """The comments `# 2: what changed` beside the line with this number, and above it."""
    comments = [lines[number - 1].partition("# ")[2]]
    for line in reversed(lines[: number - 1]):
        if not line.strip().startswith("# "):
            break
        comments.insert(0, line.strip().removeprefix("# "))
    parts = re.split(r"^(\d+): ", "\n".join(comments), flags=re.MULTILINE)
    return {int(version): " ".join(text.split()) for version, text in zip(parts[1::2], parts[2::2], strict=True)}


def manifests(packed: Path) -> list[dict[str, Any]]:
    """Those of the stages of a packed home."""
    with tarfile.open(packed) as archive:
        names = [name for name in archive.getnames() if re.fullmatch(r"home/stages/[^/]+/manifest\.json", name)]
        opened = [archive.extractfile(name) for name in names]
        return [orjson.loads(file.read()) for file in opened if file is not None]


def changed(packed: Path) -> set[str]:
    """The stages of a packed home that are made again, since they or their steps have another version by now."""
    now, working = stages(), SHARED | {name: step.version for name, step in steps().items()}
    return {
        manifest["stage"]
        for manifest in manifests(packed)
        if manifest["version"] != (now[manifest["stage"]].version if manifest["stage"] in now else 1)
        or any(version != working.get(name) for name, version in manifest["versions"].items())
        or _reads_lines_of_before(manifest)
    }


def _reads_lines_of_before(manifest: Mapping[str, Any]) -> bool:
    """Whether documents are of lines of JSON as they were read before that had a version."""
    formats = manifest["record"].get("formats", {}) if manifest["stage"] == "documents" else {}
    return "jsonl" not in manifest["versions"] and any(each["format"] == "jsonl" for each in formats.values())


def tables() -> str:
    """The tables as Markdown."""
    lines = ["| stage or step | version | what changed in its output |", "| --- | --- | --- |"]
    for kind, declared in (("stage", stages()), ("step", steps())):
        for name, each in sorted(declared.items()):
            for version in range(2, each.version + 1):
                lines.append(f"| {kind} `{name}` | {version} | {each.changes[version]} |")
    lines += ["", "| home of | its stages | made again by this release |", "| --- | --- | --- |"]
    for packed in PACKED:
        again = ", ".join(f"`{name}`" for name in sorted(changed(packed))) or "none"
        lines.append(f"| {packed.name.removesuffix('.tar.xz')} | {len(manifests(packed))} | {again} |")
    return "\n".join([*lines, ""])


def page() -> str:
    """docs/reference/versions.md with the tables of this code."""
    text = PAGE.read_text(encoding="utf-8")
    return f"{text.partition(_BEGIN)[0]}{_BEGIN}{tables()}{_END}{text.partition(_END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

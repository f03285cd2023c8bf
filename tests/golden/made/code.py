"""Repositories of source code in several languages: licences, headers, generated, minified, vendored, broken files."""

import io
import json
import tarfile
import zipfile
from pathlib import Path

from tests.golden.made.archives import stored
from tests.golden.made.words import fresh, paragraph, snippets

REPOSITORY: dict[str, str] = json.loads(
    (Path(__file__).parents[1] / "snippets" / "repository.json").read_text(encoding="utf-8")
)


def files() -> dict[str, str | bytes]:
    """By path the files of a repository."""
    found: dict[str, str | bytes] = {**REPOSITORY}
    found["latin.py"] = "x = 'caf\u00e9'\n".encode("latin-1") * 12
    found["utf16.py"] = "x = 1\n".encode("utf-16")
    found["binary.py"] = bytes(range(256))
    for lines in (9, 10, 11):
        found[f"lines/{lines}.py"] = "".join(f"value_{at} = mill({at})  # so\n" for at in range(lines))
    for size in (99, 100, 101, 999, 1000, 1001):
        found[f"width/{size}.py"] = (
            "y = 1\nz = 2\nabc = 3\n" * 4 + "x = '" + ("ab " * 340)[: size - 6] + "'\n"
            if size > 200
            else ("a" * (size - 1) + ";\n") * 12
        )
    for words in (29, 30, 31, 49, 50, 51):
        found[f"words/{words}.py"] = "\n".join(
            " ".join(fresh(f"code {words}", words)[at : at + 3]) for at in range(0, words, 3)
        )
        found[f"words/{words}.md"] = " ".join(fresh(f"md {words}", words))
    for at, share in enumerate((0.24, 0.25, 0.26, 0.49, 0.5, 0.51)):
        letters = round(400 * share)
        found[f"share/{at}.py"] = "\n".join(
            "".join("a" if n < letters // 10 else "+" for n in range(40)) for _ in range(10)
        )
        found[f"share/{at}.s"] = "\n".join(
            "".join("a" if n < letters // 10 else "1" for n in range(40)) for _ in range(10)
        )
    for at, run in enumerate((1023, 1024, 1025)):
        found[f"runs/{at}.py"] = "x = '" + ("Ab1" * 400)[:run] + "'\n" + "call_of_mill(x, y, z)\n" * 70
    for at, text in enumerate(snippets("code")):
        if "\n" in text or " " in text:
            found[f"snippets/{at}.{('py', 'c', 'js', 'html', 'sh', 'txt')[at % 6]}"] = text
    return found


def write_code(folder: Path) -> None:
    """A folder, a tar and a zip archive of repositories, and single files."""
    whole = files()
    for name, data in whole.items():
        path = folder / "repo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name in ("src/a.py", "src/b.py", "src/c.py", "README.md", "data.json"):
            data = whole[name]
            info = tarfile.TarInfo(f"packed-1.0/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data.encode() if isinstance(data, str) else data))
    (folder / "packed.tar.gz").write_bytes(stored(plain.getvalue()))
    with zipfile.ZipFile(folder / "packed.zip", "w") as archive:
        for name in ("LICENSE", "src/spdx.c", "src/mill.rs", "gen.py"):
            archive.writestr(zipfile.ZipInfo(f"z/{name}"), whole[name])
    (folder / "gpl").mkdir(exist_ok=True)
    (folder / "gpl" / "COPYING").write_text(
        "GNU GENERAL PUBLIC LICENSE\nVersion 3, 29 June 2007\n" + paragraph("gpl", 3)
    )
    (folder / "gpl" / "main.py").write_text(REPOSITORY["src/c.py"])

"""Documents for the notebooks, without a network: texts that every Python brings.

`write_docstrings` writes docstrings of the standard library. Many are nearly the same, since a class repeats what its
parents say. `write_bytecode` writes listings of bytecode, which no model of English needs.
"""

import dis
import inspect
import json
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

MODULES = """argparse asyncio base64 collections configparser csv datetime decimal email.message fractions functools
http.client inspect io ipaddress json logging mailbox multiprocessing.managers pathlib random shutil smtplib socket
statistics string subprocess tarfile tempfile textwrap threading unittest unittest.mock urllib.request uuid zipfile"""


def write_docstrings(path: Path) -> int:
    """Write a JSON line for each public class, function, and method that has a docstring. Returns their number."""
    return _write(path, _docstrings())


def write_bytecode(path: Path) -> int:
    """Write a JSON line with the bytecode of each function of the modules. Returns their number."""
    return _write(path, _bytecode())


def _docstrings() -> Iterator[dict[str, str]]:
    for name in MODULES.split():
        members = [(f"{name}.{key}", member) for key, member in inspect.getmembers(import_module(name))]
        classes = [(path, member) for path, member in members if inspect.isclass(member)]
        members += [(f"{path}.{key}", member) for path, kind in classes for key, member in inspect.getmembers(kind)]
        for path, member in members:
            text = inspect.getdoc(member) if callable(member) and "._" not in path else None
            if text:
                yield {"url": f"python:{path}", "text": text}


def _bytecode() -> Iterator[dict[str, str]]:
    for name in MODULES.split():
        for key, function in inspect.getmembers(import_module(name), inspect.isfunction):
            lines = (f"{each.offset} {each.opname} {each.argrepr}" for each in dis.get_instructions(function))
            # addresses differ in each process
            yield {"url": f"bytecode:{name}.{key}", "text": "\n".join(line.partition(" at 0x")[0] for line in lines)}


def _write(path: Path, documents: Iterable[dict[str, str]]) -> int:
    lines = [json.dumps(document) + "\n" for document in documents]
    path.write_text("".join(lines), encoding="utf-8")
    return len(lines)

"""Repositories as records: what archives of all kinds give, and what hostile ones cost."""

import io
import json
import os
import stat
import struct
import subprocess
import tarfile
import tracemalloc
import zipfile
from collections import Counter

import pytest

from gristmill.storage.remote.config import DEFAULT
from gristmill.tasks.reading.record import Repositories
from gristmill.tasks.reading.repositories.imports import in_order
from gristmill.tasks.reading.repositories.records import records
from gristmill.tasks.source_code.recognition import by_name
from gristmill.tasks.source_code.signals import measures

FILES = {
    "README.md": "# One\n",
    "LICENSE": "placeholder",
    "src/pack/__init__.py": "from .b import two\n",
    "src/pack/a.py": "import os\n\nONE = 1\n",
    "src/pack/b.py": "from pack import a\n\ntwo = a.ONE + 1\n",
    "src/umlaut.c": "/* für */\nint x;\n",
}


def mit(holder="Jane"):
    from identify.vendor.licenses import LICENSES

    return dict(LICENSES)["MIT"].replace("[year]", "2020").replace("[fullname]", holder)


@pytest.fixture
def contents():
    return {name: text.encode() for name, text in (FILES | {"LICENSE": mit()}).items()}


def tarred(path, contents, mode):
    with tarfile.open(path, mode) as archive:
        for name, data in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def zipped(path, contents):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)


def read(path, max_bytes=1 << 20, **given):
    return list(records(str(path), path.name, Repositories(**given), max_bytes, DEFAULT))


def texts(found):
    return {record.record_id: record.payload.decode() for record in found if record.problem is None}


def problems(found):
    return {record.record_id: record.problem[0] for record in found if record.problem}


@pytest.mark.parametrize("ending", ["tar", "tar.gz", "tar.bz2", "tar.xz", "zip", "whl", "folder"])
def test_every_kind_of_archive_gives_the_same_files(tmp_path, contents, ending):
    path = tmp_path / f"one-1.0.{ending}"
    if ending == "folder":
        for name, data in contents.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)
        (path / ".git").mkdir()
        (path / ".git" / "HEAD").write_text("ref: refs/heads/main")
    elif ending in ("zip", "whl"):
        zipped(path, contents)
    else:
        tarred(path, contents, f"w:{ending[4:]}" if len(ending) > 3 else "w")
    found = read(path)
    assert texts(found) == {name: data.decode() for name, data in contents.items()}
    assert [record.offset for record in found] == list(range(len(contents)))
    first = found[0].own
    assert (first["license"], first["license_type"], first["license_by"]) == ("MIT", "permissive", "text")
    assert first["repository"] == ("one-1.0.folder" if ending == "folder" else "one-1.0")


def test_a_file_by_itself_is_a_repository(tmp_path):
    path = tmp_path / "one.py"
    path.write_text("x = 1\n")
    assert texts(read(path)) == {"one.py": "x = 1\n"}


def test_a_git_bundle_is_told_what_to_do_and_the_remedy_works(tmp_path):
    def git(*arguments, at=tmp_path):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example.com", *arguments], cwd=at, check=True)

    (tmp_path / "work").mkdir()
    git("init", "-q", at=tmp_path / "work")
    (tmp_path / "work" / "a.py").write_text("x = 1\n")
    git("add", "a.py", at=tmp_path / "work")
    git("commit", "-qm", "one", at=tmp_path / "work")
    git("bundle", "create", "-q", "../X.bundle", "--all", at=tmp_path / "work")
    [found] = read(tmp_path / "X.bundle")
    assert found.problem[0] == "git_bundle"
    subprocess.run(["sh", "-c", found.problem[1].split("`")[1]], cwd=tmp_path, check=True, capture_output=True)
    assert texts(read(tmp_path / "X.tar.gz")) == {"a.py": "x = 1\n"}


def test_bad_members_cost_one_document_each(tmp_path, contents):
    path = tmp_path / "bad.tar.gz"
    with tarfile.open(path, "w:gz") as archive:

        def add(name, data=b"", **attributes):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for key, value in attributes.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(data))

        add("../up.py", b"x = 1\n")
        add("/etc/passwd", b"x\n")
        add("link.py", type=tarfile.SYMTYPE, linkname="/etc/passwd")
        add("hard.py", type=tarfile.LNKTYPE, linkname="good.py")
        add("pipe", type=tarfile.FIFOTYPE)
        add("image.png", b"\x89PNG\r\n\x1a\n\0\0\0")
        add("large.py", b"x" * 2000)
        add("broken.ipynb", b'{"cells": 3}')
        add("strange.txt", bytes(range(128, 160)) * 20 + b"\x81\x8d")
        add("folder", type=tarfile.DIRTYPE)
        add("good.py", b"x = 1\n")
    found = read(path, max_bytes=1000)
    assert problems(found) == {
        "../up.py": "unsafe_path",
        "/etc/passwd": "unsafe_path",
        "link.py": "link",
        "hard.py": "link",
        "pipe": "no_file",
        "image.png": "binary",
        "large.py": "too_large",
        "broken.ipynb": "damaged_notebook",
        "strange.txt": "not_decodable",
    }
    assert texts(found) == {"good.py": "x = 1\n"}


def test_bad_members_of_zip(tmp_path):
    path = tmp_path / "bad.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        link = zipfile.ZipInfo("link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("..\\up.py", "x = 1\n")
        archive.writestr("damaged.py", "hello = 'damaged'\n")
        archive.writestr("good.py", "x = 1\n")
    data = bytearray(path.read_bytes())
    at = data.index(b"hello = 'damaged'")
    data[at] ^= 1
    path.write_bytes(data)
    found = read(path)
    assert problems(found) == {"link": "link", "..\\up.py": "unsafe_path", "damaged.py": "damaged_file"}
    assert texts(found) == {"good.py": "x = 1\n"}


@pytest.mark.parametrize("ending", ["tar.gz", "tar.xz", "zip"])
def test_an_archive_that_unfolds_to_too_much_is_left_there(tmp_path, ending):
    path = tmp_path / f"bomb.{ending}"
    contents = {"a.py": b"x = 1\n", "bomb.txt": b"\n" * 3_000_000, "z.py": b"y = 1\n"}
    zipped(path, contents) if ending == "zip" else tarred(path, contents, f"w:{ending[4:]}")
    found = read(path, archive_bytes=2_000_000)
    assert texts(found) == {"a.py": "x = 1\n"}
    assert problems(found)[""] == "archive_too_large"


def test_a_header_that_claims_gigabytes_is_not_held(tmp_path):
    path = tmp_path / "header.tar"
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 5 << 30
    path.write_bytes(info.tobuf() + b"a" * 10_000)
    [found] = read(path)
    assert found.problem[0] == "damaged_archive"


def test_a_damaged_header_of_tar_is_not_the_end_of_its_archive(tmp_path, contents):
    path = tmp_path / "header.tar"
    tarred(path, contents, "w")
    data = bytearray(path.read_bytes())
    data[data.index(b"src/pack/b.py") + 3] ^= 1  # its checksum is wrong then
    path.write_bytes(data)
    found = read(path)
    assert [*texts(found)] == [*contents][:4]
    assert problems(found) == {"": "damaged_archive"}


def test_a_member_that_stands_for_many_costs_itself(tmp_path):
    """Three megabytes would unfold to all that an archive may."""
    path = tmp_path / "overlap.zip"
    zipped(path, {"a.py": b"x = 1\n", "k.py": b"y = 1\n" * 1000})
    data = path.read_bytes()
    directory, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    last = data.rindex(b"PK\1\2", 0, end)
    many = data[directory:last] + data[last:end] * 500
    tail = bytearray(data[end:])
    struct.pack_into("<HHI", tail, 8, 501, 501, len(many))
    path.write_bytes(data[:directory] + many + tail)
    found = read(path)
    assert texts(found) == {"a.py": "x = 1\n"}
    assert Counter(record.problem and record.problem[0] for record in found) == {None: 1, "damaged_file": 500}


def test_a_directory_of_zip_that_is_too_large_is_not_held(tmp_path):
    path = tmp_path / "directory.zip"
    path.write_bytes(b"")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.py", "x = 1\n")
    data = path.read_bytes()
    at, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    entries = (40 << 20) // (end - at)
    tail = bytearray(data[end:])
    struct.pack_into("<HHI", tail, 8, 65535, 65535, entries * (end - at))
    with open(path, "wb") as f:
        f.write(data[:at] + data[at:end] * entries + tail)
    tracemalloc.start()
    [found] = read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.problem[0] == "damaged_archive" and "directory" in found.problem[1]
    assert peak < 64 << 20  # of 33 MiB of the directory; of all its records it were 600


@pytest.mark.parametrize("ending", ["tar", "tar.gz", "tar.bz2", "tar.xz", "zip"])
def test_every_truncated_archive_is_read_without_an_error(tmp_path, contents, ending):
    path = tmp_path / f"whole.{ending}"
    zipped(path, contents) if ending == "zip" else tarred(path, contents, f"w:{ending[4:]}" if len(ending) > 3 else "w")
    data = path.read_bytes()
    step = max(1, len(data) // 40)
    for size in range(1, len(data), step):
        path.write_bytes(data[:size])
        found = read(path)
        for name, text in texts(found).items():
            assert name == path.name or text == contents[name].decode()


def test_mutated_archives_end_no_run(tmp_path, contents):
    import random

    drawn = random.Random(7)
    for ending in ("tar", "tar.gz", "zip"):
        path = tmp_path / f"whole.{ending}"
        zipped(path, contents) if ending == "zip" else tarred(
            path, contents, f"w:{ending[4:]}" if ending != "tar" else "w"
        )
        data = path.read_bytes()
        for _ in range(60):
            mutated = bytearray(data)
            for _ in range(drawn.randrange(1, 6)):
                mutated[drawn.randrange(len(mutated))] = drawn.randrange(256)
            path.write_bytes(mutated)
            numbers = [record.offset for record in read(path)]
            assert numbers == list(range(len(numbers)))


def test_encodings_are_those_that_files_declare(tmp_path):
    path = tmp_path / "texts.zip"
    zipped(
        path,
        {
            "latin.py": "# -*- coding: iso-8859-15 -*-\nx = '€'\n".encode("iso-8859-15"),
            "wide.txt": "größer".encode("utf-16"),
            "bom.c": b"\xef\xbb\xbfint x;\n",
            "guessed.c": "/* Größe der Fläche */\nint größe;\n".encode("cp1252"),
        },
    )
    assert texts(read(path)) == {
        "latin.py": "# -*- coding: iso-8859-15 -*-\nx = '€'\n",
        "wide.txt": "größer",
        "bom.c": "int x;\n",
        "guessed.c": "/* Größe der Fläche */\nint größe;\n",
    }


def test_licences_of_files_and_folders(tmp_path):
    gnu = "# SPDX-License-Identifier: GPL-2.0+\nx = 1\n"
    path = tmp_path / "licences.zip"
    zipped(
        path,
        {
            "a.py": gnu.encode(),
            "b.py": b"x = 1\n",
            "LICENSE": mit().encode(),
            "vendor/c/PKG-INFO": b"Metadata-Version: 2.1\nName: c\nLicense-Expression: Apache-2.0 OR MIT\n\nText",
            "vendor/c/c.py": b"c = 1\n",
        },
    )
    own = {record.record_id: record.own for record in read(path)}
    assert [(name, own[name]["license"], own[name]["license_type"]) for name in ("a.py", "b.py", "vendor/c/c.py")] == [
        ("a.py", "GPL-2.0-or-later", "non_permissive"),
        ("b.py", "MIT", "permissive"),
        ("vendor/c/c.py", "Apache-2.0 OR MIT", "permissive"),
    ]


def test_a_licence_header_is_ahead_of_the_repositorys_licence(tmp_path):
    """Of files of another licence: the notice of the GNU project, and the text of a licence, in comments."""
    notice = (
        "/* poly.h\n\n   Copyright (C) 2013 Jane Doe\n\n   This file is free software: you can redistribute it and/or\n"
        "   modify it under the terms of the GNU General Public License as\n   published by the Free Software"
        " Foundation; either version 2 of the\n   License, or (at your option) any later version.\n*/\nint x;\n"
    )
    path = tmp_path / "headers.zip"
    from identify.vendor.licenses import LICENSES

    bsd = "".join(f"# {line}".rstrip() + "\n" for line in dict(LICENSES)["BSD-2-Clause"].splitlines())
    contents = {
        "LICENSE": mit(),
        "poly.h": notice,
        "bsd.py": bsd + "\nx = 1\n",
        "own.py": '"""Writes the GNU General Public License, version 2, into files."""\nx = 1\n',
    }
    zipped(path, {name: text.encode() for name, text in contents.items()})
    own = {record.record_id: (record.own["license"], record.own["license_by"]) for record in read(path)}
    assert own == {
        "LICENSE": ("MIT", "text"),
        "poly.h": ("GPL-2.0-or-later", "file"),
        "bsd.py": ("BSD-2-Clause", "file"),
        "own.py": ("MIT", "text"),
    }


HEADER = "# Copyright {year} Jane\n# Licensed under the Apache License, Version 2.0\n"


def test_a_repeated_licence_header_is_left_out(tmp_path):
    path = tmp_path / "headers.zip"
    contents = {
        "a.py": "#!/usr/bin/env python\n" + HEADER.format(year=2019) + "\nx = 1\n",
        "b.py": HEADER.format(year=2020) + "\ny = 1\n",
        "c.py": HEADER.format(year=2020) + '"""Says more."""\n',
        "d.py": "# just a comment\nz = 1\n",
        "e.py": "# Copyright Joe\nz = 1\n",
    }
    zipped(path, {name: text.encode() for name, text in contents.items()})
    found = texts(read(path))
    assert found == contents | {"b.py": "y = 1\n", "c.py": '"""Says more."""\n'}
    counts = [record.own["header_characters"] for record in read(path)]
    assert counts == [0, len(HEADER.format(year=2020)) - 1, len(HEADER.format(year=2020)) - 1, 0, 0]
    assert texts(read(path, repeated_headers=True)) == contents


def test_a_repository_is_a_document_in_the_order_of_its_imports(tmp_path, contents):
    path = tmp_path / "one.zip"
    zipped(path, contents)
    [found] = read(path, unit="repository", file_header="=== {path}")
    text = found.payload.decode()
    order = [line[4:] for line in text.split("\n") if line.startswith("=== ")]
    assert order == [
        "src/pack/a.py", "src/pack/b.py", "src/pack/__init__.py", "src/umlaut.c", "LICENSE", "README.md"
    ]  # fmt: skip
    assert found.own["files"] == 6
    assert all(data.decode().rstrip() in text for data in contents.values())


def test_documents_of_repositories_are_bounded(tmp_path):
    path = tmp_path / "many.zip"
    contents = {f"{n:02}.txt": b"x" * 90 for n in range(20)} | {"long.txt": b"y" * 900}
    zipped(path, contents)
    found = read(path, unit="repository", file_header="{path}", document_bytes=500)
    sizes = [len(record.payload) for record in found if record.own["files"] > 1]
    assert sizes and max(sizes) <= 500 + 2 * 5
    assert sum(record.own["files"] for record in found) == 21


def test_files_left_out_are_in_the_ledger(tmp_path):
    path = tmp_path / "kinds.zip"
    contents = {
        "a_pb2.py": b"# Generated by the protocol buffer compiler.  DO NOT EDIT!\nx = 1\n",
        "node_modules/x/index.js": b"module.exports = 1;\n",
        "x.min.js": b"var a=1;",
        "table.csv": b"1,2,3\n" * 600,
        "own.py": b"print('generated by hand')\n",
    }
    zipped(path, contents)
    found = read(path, unit="repository", leave_out=("generated", "vendored", "minified", "data"))
    assert Counter(problems(found).values()) == Counter(generated=2, vendored=1, data=1)
    assert [record.own["path"] for record in found if record.own] == ["own.py"]


def test_a_circle_of_imports_is_broken_at_the_fewest():
    files = [("a.py", "import b\nimport c\n"), ("b.py", "import a\n"), ("c.py", ""), ("d.py", "from a import x\n")]
    assert [files[at][0] for at in in_order(files)] == ["c.py", "a.py", "b.py", "d.py"]


# By language files whose names go against the order of their imports, which is written first.
IMPORTS = {
    "script": {
        "lib/z.ts": "export const z = 1;\n",
        "lib/y/index.js": "const { z } = require('../z');\nconst fs = require('fs');\n",
        "lib/x.tsx": "import type { Z } from \"./z.js\";\nimport y from './y';\n",
        "lib/w.mjs": "export * from './x.js';\n",
        "a.js": "import './lib/w.mjs';\nconst late = await import('./lib/z');\n",
    },
    "c": {
        "include/z/z.h": "#pragma once\n#include <stdio.h>\n",
        "src/y.hpp": '#include "z/z.h"\n',
        "src/deep/x.h": '#  include "../y.hpp"\n',
        "a.cc": "#include <z/z.h>\n#include <deep/x.h>\n",
    },
    "java": {
        "src/main/java/org/z/Z.java": "package org.z;\nclass Z {}\n",
        "src/main/java/org/y/Y.java": "package org.y;\nimport org.z.Z;\nimport java.util.List;\n",
        "src/main/java/org/X.java": "package org;\nimport static org.y.Y.one;\n",
    },
    "rust": {
        "src/z/deep.rs": "pub fn one() {}\n",
        "src/z.rs": "pub(crate) mod deep;\n",
        "src/y/mod.rs": "use crate::z;\n",
        "src/lib.rs": "mod z;\npub mod y;\nmod tests { }\n",
    },
}


@pytest.mark.parametrize("language", IMPORTS)
def test_what_is_imported_comes_first(language):
    wanted = [*IMPORTS[language].items()]
    files = [("README", ""), *reversed(wanted)]
    placed = [files[at][0] for at in in_order(files)]
    assert placed[-1] == "README"
    order = {path: at for at, path in enumerate(placed)}
    # what a file imports, by its own text
    needs = {
        "script": [("lib/z.ts", "lib/y/index.js"), ("lib/y/index.js", "lib/x.tsx"), ("lib/z.ts", "lib/x.tsx"),
                   ("lib/x.tsx", "lib/w.mjs"), ("lib/w.mjs", "a.js")],
        "c": [("include/z/z.h", "src/y.hpp"), ("src/y.hpp", "src/deep/x.h"), ("src/deep/x.h", "a.cc")],
        "java": [("src/main/java/org/z/Z.java", "src/main/java/org/y/Y.java"),
                 ("src/main/java/org/y/Y.java", "src/main/java/org/X.java")],
        "rust": [("src/z/deep.rs", "src/z.rs"), ("src/z.rs", "src/lib.rs"), ("src/y/mod.rs", "src/lib.rs")],
    }[language]  # fmt: skip
    assert [(a, b) for a, b in needs if order[a] > order[b]] == []


def test_notebooks_are_text_and_code_in_turn(tmp_path):
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "Words."]},
        {"cell_type": "code", "source": "x = '```'\n", "outputs": [{"text": "out"}]},
        {"cell_type": "code", "source": ""},
    ]
    path = tmp_path / "one.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": {"language_info": {"name": "python"}}}))
    assert texts(read(path)) == {"one.ipynb": "# Title\nWords.\n\n````python\nx = '```'\n````"}


def test_a_folder_of_the_machine_is_not_left_by_links(tmp_path):
    (tmp_path / "repo").mkdir()
    (tmp_path / "secret").write_text("secret")
    os.symlink(tmp_path / "secret", tmp_path / "repo" / "link.txt")
    os.symlink(tmp_path, tmp_path / "repo" / "up")
    (tmp_path / "repo" / "a.py").write_text("x = 1\n")
    found = read(tmp_path / "repo")
    assert texts(found) == {"a.py": "x = 1\n"}
    assert problems(found) == {"link.txt": "link", "up": "link"}


@pytest.mark.extended
def test_texts_made_to_take_long_are_read_at_once(tmp_path):
    """Each of them takes minutes where an expression goes back over what it has read."""
    path = tmp_path / "slow.zip"
    contents = {
        "LICENSE": b"\n" * 300_000 + b"x",
        "spaces.py": b"# Copyright" + b" " * 300_000 + b"x\n",
        "hex.c": b"aa " * 100_000 + b" " * 300_000 + b"z",
        "quotes.js": b'"' + b"\\" * 300_001,
        "ticks.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": "`" * 500_000}]}).encode(),
        "strings.py": b'"""' * 300_000,
        "includes.c": b"".join(b"#include <a%d/stars.c>\n" % n for n in range(30_000)),
        "stars.c": b"/* copyright " + b"* " * 100_000,
        "deep/" * 400 + "a.py": b"from . import a, b, c\n" * 1000,
        "x/" * 3000 + "long.py": b"x = 1\n",
    }
    zipped(path, contents)
    found = read(path, unit="repository", leave_out=("generated", "vendored", "minified", "data"))
    assert [*problems(found).values()] == ["generated", "unsafe_path"]  # quotes.js is one line
    signals = [measures(name, data.decode(), by_name(name)[0]) for name, data in contents.items()]
    assert len(signals) == len(contents)

"""The texts of real web pages, as the pipeline reads them, for checks that are not part of the default run."""

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gristmill.storage import layout
from gristmill.tasks.documents.normalize import Normalize
from gristmill.tasks.extraction.extract import Extract
from gristmill.tasks.extraction.shard import extract_shard
from gristmill.tasks.reading.shard import Shard


def web_texts(folder: Path) -> list[str]:
    """Normalized main texts of all pages in GRISTMILL_TEST_DATA/warc/web; what is extracted is written under
    `folder`."""
    data = os.environ.get("GRISTMILL_TEST_DATA")
    if not data:
        pytest.skip("set GRISTMILL_TEST_DATA to a folder with warc/web/*.warc.gz")
    texts = []
    for number, path in enumerate(sorted(Path(data, "warc", "web").glob("*.warc.gz"))):
        shard = Shard("archive", str(path), path.name)
        extract_shard(str(folder), number, "web", (shard,), None, (), Extract(), Normalize(), ())
        texts += pq.read_table(layout.part(str(folder), number), columns=["text"])["text"].to_pylist()
    assert texts, f"{data}/warc/web has no page with a text"
    return texts

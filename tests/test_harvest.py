"""The synthetic crawl: its files one by one and together, and the statistics that it promises, by other means."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from warcio.archiveiterator import ArchiveIterator
from warcio.exceptions import ArchiveLoadFailed

from tests.corpora import plain_jaccard
from tools.harvest.__main__ import main, write_file
from tools.harvest.pages import COPIES, LANGUAGES, WORDS, pages
from tools.harvest.texts import texts

DOCUMENTS = 20_000


@pytest.mark.extended
def test_a_file_is_the_same_alone_and_with_any_number_of_processes(tmp_path):
    for kind in ("parquet", "warc"):
        given = ["--documents", "60", "--files", "3", "--seed", "4"]
        main([kind, str(tmp_path / f"{kind}-one"), *given, "--processes", "1"])
        main([kind, str(tmp_path / f"{kind}-two"), *given, "--processes", "2"])
        (tmp_path / "alone").mkdir(exist_ok=True)
        write_file(2, str(tmp_path / "alone"), kind, 60, 3, 4, WORDS)
        [alone] = (tmp_path / "alone").glob(f"*{kind}*")
        for folder in ("one", "two"):
            assert (tmp_path / f"{kind}-{folder}" / alone.name).read_bytes() == alone.read_bytes()
        other = tmp_path / "other"
        other.mkdir(exist_ok=True)
        write_file(2, str(other), kind, 60, 3, 5, WORDS)
        assert (other / alone.name).read_bytes() != alone.read_bytes()


def test_files_that_are_there_stay_and_another_crawl_is_refused(tmp_path, capsys):
    given = ["parquet", str(tmp_path), "--documents", "40", "--files", "2", "--processes", "1"]
    main(given)
    made = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.parquet")}
    main(given)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.parquet")} == made and len(made) == 2
    with pytest.raises(SystemExit):
        main([*given, "--seed", "1"])
    assert "has another crawl" in capsys.readouterr().err


def test_lengths_languages_hosts_and_copies_are_as_promised():
    some = pages(DOCUMENTS, 0, DOCUMENTS, 0)
    originals = some.text > DOCUMENTS // 10
    assert abs((~originals).mean() - COPIES) < 0.02
    assert 0.9 * WORDS < np.median(some.words[originals]) < 1.1 * WORDS
    assert 0.9 < np.log(some.words[originals]).std() < 1.1
    shares = Counter(some.language[originals].tolist())
    for number, share in enumerate(LANGUAGES.values()):
        assert abs(shares[number] / originals.sum() - share) < 0.02
    # sizes that fall with the rank by a power: a straight line of logarithms, as steep as 1/3 - 1
    for numbers, power in ((some.text[~originals], 3), (some.host, 4)):
        sizes = np.array(sorted(Counter(numbers.tolist()).values(), reverse=True))[:200]
        slope, _ = np.polyfit(np.log(np.arange(5, len(sizes))), np.log(sizes[5:]), 1)
        assert abs(slope - (1 / power - 1)) < 0.3


def test_copies_have_the_text_of_their_cluster_but_for_their_edits():
    some = pages(DOCUMENTS, 0, 3_000, 0)
    written = texts(some, 0).to_pylist()
    spaced = some.language != list(LANGUAGES).index("zh")
    short = np.flatnonzero((some.words > 100) & (some.words < 400) & spaced)
    clusters: dict[int, list[int]] = {}
    for at in short.tolist():
        clusters.setdefault(int(some.text[at]), []).append(at)
    exact, edited, unlike = [], [], []
    for members in clusters.values():
        for one, other in zip(members, members[1:], strict=False):
            similarity = plain_jaccard(written[one], written[other])
            (edited if some.edited[one] or some.edited[other] else exact).append(similarity)
    originals = [members[0] for members in clusters.values()][:40]
    unlike = [plain_jaccard(written[a], written[b]) for a, b in zip(originals, originals[1:], strict=False)]
    # but for a template around one of them
    assert len(exact) > 20 and min(exact) > 0.7 and max(exact) == 1
    assert len(edited) > 20 and min(edited) > 0.2 and 0.4 < np.median(edited) < 1
    assert max(unlike) < 0.2


def test_archives_are_read_by_another_reader(tmp_path):
    main(["warc", str(tmp_path), "--documents", "400", "--files", "4", "--processes", "1"])
    statuses, kinds, charsets = Counter[str](), Counter[str](), Counter[str]()
    for path in sorted(tmp_path.glob("*.warc.gz")):
        with path.open("rb") as f:
            try:
                for record in ArchiveIterator(f):
                    if record.rec_type != "response":
                        continue
                    headers = record.http_headers
                    statuses[headers.get_statuscode()] += 1
                    media, _, charset = headers.get_header("Content-Type").partition("; charset=")
                    kinds[media] += 1
                    body = record.content_stream().read()
                    if charset and statuses and headers.get_statuscode() == "200":
                        charsets[charset] += 1
                        body.decode(
                            charset, "strict" if not record.rec_headers.get_header("WARC-Truncated") else "ignore"
                        )
            except ArchiveLoadFailed:  # a record that was damaged
                pass
    assert 350 < sum(statuses.values()) <= 400 and statuses["200"] > 320 and len(statuses) > 2
    assert kinds["text/html"] > 340 and len(kinds) > 1 and charsets["utf-8"] > 250 and len(charsets) > 1


def test_tables_have_what_a_source_needs(tmp_path):
    main(["parquet", str(tmp_path), "--documents", "50", "--files", "1", "--processes", "1"])
    table = pq.read_table(Path(tmp_path) / "000000.parquet")
    assert table.column_names == ["url", "date", "language", "text"] and len(table) == 50
    assert len(set(table["url"].to_pylist())) == 50 and min(map(len, table["text"].to_pylist())) > 5

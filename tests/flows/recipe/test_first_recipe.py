"""`gristmill recipe init` on planted files of each kind: what it finds, and that the recipe reads just these files."""

import gzip
import json
import os
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.recipe.first_recipe import first_recipe
from gristmill.flows.recipe.recipe import RECIPES, Recipe, load
from gristmill.flows.stages.corpus import NothingLeftError
from gristmill.tasks.reading.members import zstd
from tests.conftest import FRENCH, page, write_warc
from tests.tasks.pdf.writing import lines as placed
from tests.tasks.pdf.writing import pdf

ENGLISH = "The old mill stands by the river, and the farmers of the valley bring their grain to it every autumn. " * 8
FRENCH_TEXT = " ".join(FRENCH)


def lines(rows) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


def sources(text: str) -> list[dict]:
    recipe = load(yaml.safe_load(text))
    assert isinstance(recipe, Recipe)
    for source in recipe.sources:
        source.shards()  # which raises for what is not there
    return yaml.safe_load(text)["sources"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_archives_are_known_by_content_and_pages_are_seen(folder):
    pages = [(f"https://a.example/{i}", page([ENGLISH]), "200 OK", "text/html") for i in range(3)]
    write_warc(folder / "crawl" / "a.data", pages)
    (folder / "crawl" / "b.data").write_bytes(
        zstd.compress(gzip.decompress((folder / "crawl" / "a.data").read_bytes()))
    )
    made = first_recipe(["crawl"])
    assert sources(made.text) == [{"name": "crawl", "warc": ["crawl/*.data"]}]
    assert "the main text of HTML pages" in made.text and made.languages == {"en": 6} and made.passed_over == ()


@pytest.mark.parametrize("packed", [bytes, gzip.compress, zstd.compress])
def test_columns_of_lines_are_found_by_their_names(folder, packed):
    row = {
        "Title": "The longest of all titles " * 90,
        "Body": FRENCH_TEXT,
        "URL": "https://a",
        "_id": 7,
        "created": "2024",
    }
    (folder / "x.dump").write_bytes(packed(lines([row] * 5)))
    made = first_recipe(["x.dump"], "mine")
    [source] = sources(made.text)
    assert source == {
        "name": "x",
        "jsonl": ["x.dump"],
        **{"text_column": "Body", "url_column": "URL", "id_column": "_id", "date_column": "created"},
    }
    assert made.name == "mine" and load(yaml.safe_load(made.text)).name == "mine"
    steps = {step["step"]: step for step in yaml.safe_load(made.text)["steps"]}
    assert steps["language"]["keep"] == ["fr"] and steps["gopher_quality"]["min_stop_words"] == 0


@pytest.mark.extended
def test_init_says_what_it_took_a_column_for_and_which_it_left(folder):
    row = {"content": ENGLISH, "permalink": "https://a", "docKey": "k", "pubDate": "2024-05-18", "license": "by"}
    (folder / "x.jsonl").write_bytes(lines([row | {"language": "en"}] * 5))
    done = CliRunner().invoke(app, ["recipe", "init", "x.jsonl"])
    assert done.exit_code == 0 and (
        "text in `content`, url in `permalink`, id in `docKey`, date in `pubDate`; ignored: license, language"
    ) in " ".join(done.output.split())
    text = (folder / "recipe.yaml").read_text()
    [source] = sources(text)
    assert source["date_column"] == "pubDate"
    # what the comment offers is what a recipe takes
    offered = yaml.safe_load(text.split("to also keep other columns: columns: ")[1].splitlines()[0])
    assert offered == {"license": "license", "their_language": "language"}
    load({"name": "x", "sources": [source | {"columns": offered}], "steps": [{"step": "extract"}]})
    (folder / "y.jsonl").write_bytes(lines([{"text": ENGLISH, "when": "2024-05-18"}]))
    assert sources(first_recipe(["y.jsonl"]).text)[0]["date_column"] == "when"


def test_a_table_is_read_after_a_change_of_the_folder(folder, monkeypatch):
    """Tables are decoded in a process that began in another one."""
    for name in ("one", "two"):
        (folder / name).mkdir()
        monkeypatch.chdir(folder / name)
        pq.write_table(pa.table({"text": [ENGLISH]}), f"{name}.parquet")
        [source] = sources(first_recipe([f"{name}.parquet"]).text)
        assert source["parquet"] == [f"{name}.parquet"]


def test_without_a_name_that_is_known_the_longest_texts_are_taken(folder):
    rows = [{"kind": "a", "essay": ENGLISH, "n": 1, "tags": ["x"]}, {"kind": "b", "essay": None, "n": 2, "tags": []}]
    pq.write_table(pa.Table.from_pylist(rows), folder / "t.parquet")
    [source] = sources(first_recipe(["t.parquet"]).text)
    assert source == {"name": "t", "parquet": ["t.parquet"], "text_column": "essay"}


def test_texts_that_a_table_has_as_bytes_are_taken_and_keys_are_no_texts(folder):
    rows = [{"id": f"{n}", "text": f"{n} {ENGLISH}".encode()} for n in range(4)] + [{"id": "4", "text": b"\xff"}]
    pq.write_table(pa.Table.from_pylist(rows), folder / "t.parquet")
    assert sources(first_recipe(["t.parquet"]).text) == [{"name": "t", "parquet": ["t.parquet"], "id_column": "id"}]
    pages = [{"id": "0", "url": "https://a.example/", "html": b"<html><p>" + ENGLISH.encode()}]
    pq.write_table(pa.Table.from_pylist(pages), folder / "pages.parquet")
    with pytest.raises(FileNotFoundError, match="no column with text; there are id, url, html"):
        first_recipe(["pages.parquet"])


def test_lines_in_another_encoding_are_named_with_the_conversion(folder):
    text = '{"text": "Der Müller öffnet früh am Morgen das Wehr."}\n' * 3
    for encoding, reason in (
        ("utf-16", "JSON in UTF-16: .* -f UTF-16"),
        ("latin-1", "JSON that is not UTF-8: .* -t UTF"),
    ):
        (folder / "lines.jsonl").write_bytes(text.encode(encoding))
        with pytest.raises(FileNotFoundError, match=reason):
            first_recipe(["lines.jsonl"])


def test_mixed_kinds_and_columns_are_several_sources_and_strange_files_are_named(folder):
    data = folder / "My data"
    (data / "deep" / ".hidden").mkdir(parents=True)
    for name in ("one.txt", "deep/two.txt", "deep/.hidden/three.txt"):
        (data / name).write_text(ENGLISH)
    (data / "a.jsonl").write_bytes(lines([{"text": ENGLISH}]))
    (data / "b.jsonl").write_bytes(lines([{"content": ENGLISH}]))
    strange = {"empty.txt": b"", "photo.jpg": os.urandom(500), "t.csv": b"a,b\n", "all.json": b'[\n{"text": "x"}\n]'}
    strange |= {"n.jsonl": b'{"n": 1}\n', "broken.parquet": b"PAR1 and no more", "s[1].html": b"<html>"}
    for name, content in strange.items():
        (data / name).write_bytes(content)
    os.mkfifo(data / "pipe.txt")
    (data / "gone.jsonl").symlink_to("nowhere")
    made = first_recipe(["My data"])
    found = {source["name"]: source for source in sources(made.text)}
    assert found["my-data"]["jsonl"] == ["My data/a.jsonl"]
    [texts] = [source["text"] for source in found.values() if "text" in source]
    assert texts == ["My data/deep/two.txt", "My data/one.txt"]  # a glob would find the empty file, too
    assert {os.path.basename(path) for path, _ in made.passed_over} == {*strange, "pipe.txt", "gone.jsonl"}
    assert all(reason for _, reason in made.passed_over) and len(found) == 3


def test_a_damaged_line_is_no_trouble_and_only_the_beginning_is_read(folder):
    rows = [lines([{"text": ENGLISH}]), b"{broken", *[lines([{"text": ENGLISH}])] * 4000]
    (folder / "x.jsonl").write_bytes(b"\n".join(rows))
    made = first_recipe(["x.jsonl"])
    assert len(made.sources[0].looks[0].texts) == 40
    (folder / "y.jsonl").write_bytes(b'{"text": "' + b"x" * (2 << 20) + b'"}\n')
    with pytest.raises(FileNotFoundError, match="y.jsonl: its first line has more than 1 MiB"):
        first_recipe(["y.jsonl"])


def test_many_files_of_one_suffix_are_not_all_looked_at(folder):
    for i in range(100):
        (folder / f"{i:03}.txt").write_text(ENGLISH)
    made = first_recipe(["."])
    assert len(made.sources[0].looks) < 40 and made.sources[0].files == 100
    (folder / "098.txt").write_bytes(os.urandom(900))
    (folder / "099.txt").write_bytes(lines([{"text": ENGLISH}]))
    assert sources(made.text)[0]["text"] == ["*.txt"]


def test_the_command_says_what_it_found_and_overwrites_nothing(folder):
    (folder / "evil\x1b[31m.bin").write_bytes(os.urandom(500))
    (folder / "a.txt").write_text(ENGLISH)
    shown = CliRunner().invoke(app, ["recipe", "init", ".", "--out", "r.yaml"])
    assert shown.exit_code == 0, shown.output
    assert "1 text file" in shown.stdout and "keeps none of the sample" in shown.stdout
    assert "gristmill check r.yaml" in shown.stdout and "gristmill corpus" not in shown.stdout
    assert "\x1b" not in shown.stdout and "evil\\x1b[31m.bin" in shown.stdout
    assert load(str(folder / "r.yaml")).mixture is None
    assert len((folder / "r.yaml").read_text().splitlines()) <= 12
    again = CliRunner().invoke(app, ["recipe", "init", ".", "--out", "r.yaml"])
    assert isinstance(again.exception, FileExistsError) and "r.yaml exists. Choose another file" in str(again.exception)
    with pytest.raises(FileNotFoundError, match="there is no file or folder nothing"):
        first_recipe(["nothing"])


@pytest.fixture
def packed(folder):
    """Two archives of code and one of pictures."""
    (folder / "code").mkdir()
    with tarfile.open(folder / "code" / "mill-1.0.tar.xz", "w:xz") as archive:
        archive.add(__file__, "mill/test.py")
    with zipfile.ZipFile(folder / "code" / "wheel.whl", "w") as wheel:
        wheel.write(__file__, "mill/test.py")
    with zipfile.ZipFile(folder / "code" / "pictures.zip", "w") as pictures:
        pictures.writestr("a.jpeg", b"\xff\xd8")
        pictures.writestr("README.md", "# Pictures of mills")
    return folder


def runs(folder, given: str) -> dict:
    """The recipe that is written for what is given, of which `check` finds nothing wrong."""
    out = str(folder / "recipe.yaml")
    shown = CliRunner().invoke(app, ["recipe", "init", given, "--out", out])
    assert shown.exit_code == 0, shown.output
    checked = CliRunner().invoke(app, ["check", out])
    assert checked.exit_code == 0 and "no problems" in checked.output, checked.output
    return yaml.safe_load((folder / "recipe.yaml").read_text())


def test_a_shipped_recipe_is_written_with_its_comments(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["recipe", "init", "fineweb"])
    assert done.exit_code == 0 and "gristmill check recipe.yaml" in done.output
    assert Path("recipe.yaml").read_text() == (RECIPES / "fineweb.yaml").read_text()
    assert load("recipe.yaml") == load("fineweb")
    assert CliRunner().invoke(app, ["recipe", "init", "no-such-recipe", "--out", "b.yaml"]).exit_code != 0


@pytest.mark.extended
def test_a_folder_of_pdf_documents_is_read_in_the_language_that_they_have(folder):
    (folder / "papers" / "deep").mkdir(parents=True)
    for place in ("papers/a.pdf", "papers/deep/b.pdf"):
        (folder / place).write_bytes(pdf([placed([FRENCH_TEXT[:90], FRENCH_TEXT[90:180]])]))
    (folder / "papers" / "broken.pdf").write_bytes(b"%PDF-1.7\n")
    recipe = runs(folder, "papers")
    assert recipe["sources"] == [{"name": "papers", "pages": ["papers/**/*.pdf"]}]
    steps = {step["step"]: step for step in recipe["steps"]}
    assert "pdf" in steps["extract"]["types"] and "pdf_garbled" in steps["where"]["keep"]
    assert steps["language"]["keep"] == ["fr"]


def test_archives_of_code_get_the_steps_of_code(packed):
    recipe = runs(packed, "code")
    assert recipe["sources"] == [{"name": "code", "code": ["code/mill-1.0.tar.xz", "code/wheel.whl"]}]
    assert [step["step"] for step in recipe["steps"]][:3] == ["code_language", "code", "stack_v2"]
    assert "pictures.zip" in str(first_recipe(["code"]).passed_over)


def test_archives_of_code_among_other_files_are_passed_over_with_the_command_for_them(packed):
    (packed / "a.txt").write_text(ENGLISH)
    made = first_recipe([str(packed)])
    assert sources(made.text)[0]["text"]
    reasons = dict(made.passed_over)
    path = str(packed / "code" / "wheel.whl")
    command = reasons[path].split("`")[1].split()
    assert command[0] == "gristmill"
    done = CliRunner().invoke(app, [*command[1:-1], path])
    assert done.exit_code == 0, done.output
    assert yaml.safe_load((packed / "code.yaml").read_text())["sources"][0]["code"]


def documents_of(words: int, symbols: int, count: int) -> list[dict]:
    """Documents of so many different words, with so many tokens of punctuation among them."""
    texts = []
    for number in range(count):
        tokens = [
            f"the {''.join(chr(97 + (number * 7 + at * 11 + k * k) % 26) for k in range(5))}" for at in range(words)
        ]
        texts.append({"text": " ".join(f"{t} /" if at < symbols else t for at, t in enumerate(tokens)) + " of be"})
    return texts


def init(folder, rows: list[dict]) -> tuple[str, dict]:
    (folder / "rows.jsonl").write_bytes(lines(rows))
    shown = CliRunner().invoke(app, ["recipe", "init", "rows.jsonl"])
    assert shown.exit_code == 0, shown.output
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text())
    (folder / "recipe.yaml").unlink()
    load(recipe)
    return shown.stdout, {step["step"]: step for step in recipe["steps"]}


@pytest.mark.extended
def test_a_threshold_is_chosen_where_punctuation_counts_as_words(folder, monkeypatch):
    """The drops that are shown are those of the recipe that is written."""
    monkeypatch.setattr(
        "gristmill.flows.recipe.first_recipe._steps",
        lambda *given: [({"step": "extract"}, "texts"), ({"step": "gopher_quality", "min_stop_words": 0}, "length")],
    )
    short = [{"text": f"The mill number {at} is small."} for at in range(12)]
    near, far, good = documents_of(60, 40, 10), documents_of(60, 60, 2), documents_of(60, 0, 60)
    shown, steps = init(folder, near + far + good + short)
    assert steps["gopher_quality"]["min_alpha_words"] == 0.7
    chosen = (
        "set gopher_quality.min_alpha_words: 0.7, because Gopher's 0.8, which counts punctuation as words, would drop"
    )
    assert f"{chosen} 10 more of 84 sampled documents" in shown
    assert "sample: the steps keep 70 of 84 documents" in shown and "10 of the dropped documents" in shown
    listed = [line for line in shown.splitlines() if line.startswith("  gopher_quality.")]
    assert len(listed) == 10 and sum("alpha_words 0.67" in line for line in listed) == 2
    assert "(threshold 0.7), counts punctuation as words: the " in shown and "words 6 (threshold 50): The mill" in shown

    shown, steps = init(folder, far + good + short)
    assert "min_alpha_words" not in steps["gopher_quality"] and "chosen" not in shown
    assert "(threshold 0.8), counts punctuation as words: the " in shown


def test_a_sample_of_which_nothing_is_kept_is_shown_and_the_recipe_is_written(folder):
    shown, _ = init(folder, [{"text": "Too short."}])
    assert "sample: the steps keep 0 of 1 documents" in shown and "Too short." in shown


def test_chinese_is_not_dropped_for_short_words(folder):
    text = (
        "这个村子里有一座古老的磨坊，已经有三百多年的历史了。磨坊的主人姓王，他的祖父和父亲都在这里工作过。每天早上，"
        "附近的农民会把小麦和玉米送来，他们一边等待，一边谈论天气和市场上的价格。春天河水很多的时候，水轮转得特别快，"
        "一天可以磨出两千公斤面粉。到了冬天，河面结冰，主人只好用电来带动机器。现在许多游客从城市来到这里，想看看以前的人"
        "是怎样做面包的。政府也给了一些钱，帮助他们修理屋顶和木头的大门。"
    )
    shown, steps = init(folder, [{"text": f"这是关于磨坊的第{at}篇文章。{text}"} for at in range(40)])
    assert steps["language"]["keep"] == ["zh"] and steps["gopher_quality"]["min_mean_word_length"] is None
    assert "gopher_quality.mean_word_length" not in shown


def test_a_source_without_a_document_is_one_line_and_the_recipe_is_written(folder, monkeypatch):
    def empty(recipe):
        raise NothingLeftError("source rows gives no documents: 3 of 3 records are empty")

    monkeypatch.setattr("gristmill.flows.reports.run.trial.trial", empty)
    shown, steps = init(folder, [{"text": ENGLISH}])
    assert "sample: source rows gives no documents: 3 of 3 records are empty\n" in shown and "gopher_quality" in steps

"""What a check finds, and that it finds all of it, without running anything."""

import json
import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import before_run, check, largest_job
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import load
from gristmill.tasks.models.language import CODES
from tests.flows.broken_recipes import BASE, BROKEN, Broken


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for name in ("web", "books"):
        (folder / f"{name}.jsonl").write_text('{"text": "A text."}\n' * 500)
    return folder


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> MachineSettings:
    return MachineSettings(home=str(tmp_path_factory.mktemp("home")))


def written(folder: Path, text: str) -> str:
    path = folder / "recipe.yaml"
    path.write_text(text.replace("{files}", str(folder)))
    return str(path)


def lines(found) -> list[str]:
    return [str(finding) for finding in found.findings]


def test_the_whole_recipe_has_nothing_wrong_and_an_estimate(folder, machine):
    found = check(written(folder, BASE), machine)
    assert lines(found) == [] and found.unseen == ()
    assert found.estimate is not None and found.estimate.input_bytes == 20_000
    assert 0 < found.estimate.seconds[0] < found.estimate.seconds[1]


def test_the_estimate_names_a_step_whose_speed_is_not_known(folder, machine):
    step = "step: embedding\n    model: https://example.org/embedder\n  - step: perplexity"
    found = check(written(folder, BASE.replace("step: perplexity", step)), machine)
    assert found.estimate is not None and found.estimate.unrated == ("embedding",)
    assert found.estimate.seconds is None and found.estimate.bytes is not None
    assert found.estimate.sentence.startswith("estimate: unknown time, because the speed of embedding is unknown, ")


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_a_broken_recipe_gives_one_line_with_key_value_and_remedy(broken: Broken, folder, machine):
    assert BASE.count(broken.old) == 1
    path = written(folder, BASE.replace(broken.old, broken.new))
    found = check(path, machine)
    [line] = lines(found)
    assert "\n" not in line and "pydantic" not in line and "Input should" not in line
    assert line.startswith(f"{path}:{broken.place}: ")
    for part in (broken.key, broken.value, broken.remedy):
        assert part in line, line
    # the same line for those who load the recipe, or run it, from Python
    with pytest.raises(RecipeError) as raised:
        before_run(load(path), machine)
    [finding] = raised.value.findings
    assert (finding.key, finding.message) == (found.findings[0].key, found.findings[0].message)


def test_all_that_is_wrong_is_found_at_once(folder, machine):
    text = (
        BASE.replace("seed: 3", "sed: 3")
        .replace("keep: [en]", "keep: [eng]")
        .replace("dim: 128", "dim: 100\n  heads: 8")
    )
    text = text.replace("web.jsonl", "wob.jsonl")
    assert [finding.key for finding in check(written(folder, text), machine).findings] == [
        *("steps.language.keep", "model", "sed", "sources.web.jsonl[0]"),
    ]
    text = BASE.replace("reference: [books]", "reference: [boks, web]").replace("{web: 0.7", "{wob: 0.7")
    assert [finding.key for finding in check(written(folder, text), machine).findings] == [
        *("mixture.weights.wob", "steps.perplexity.reference"),
    ]


def test_a_wrong_value_in_a_step_or_a_source_has_one_line(folder, machine):
    one = "name: r\nsources:\n- {name: web, jsonl: [web.jsonl]}\nsteps:\n- {step: minhash}\n"
    for wrong, key in (
        (one.replace("minhash", "minhash, bands: x"), "steps.minhash.bands"),
        (one.replace("]}", "], shard_bytes: many}"), "sources.web.shard_bytes"),
    ):
        [line] = lines(check(written(folder, wrong), machine))
        assert f"{key}: is " in line


@pytest.mark.parametrize(
    ("content", "source", "message"),
    [
        (
            b'[{"text": "a"}, {"text": "b"}]',
            "jsonl: [odd]",
            "is one JSON array, not an object a line.*jq -c '.\\[\\]'",
        ),
        (b'[\n {"text": "a"},\n {"text": "b"}\n]\n', "jsonl: [odd]", "is one JSON array"),
        (b'{\n "text": "a"\n}\n', "jsonl: [odd]", "its JSON objects go over several lines, and not one a line.*jq -c"),
        (b'{"body": "a", "id": 1}\n', "jsonl: [odd]", "text is missing, there are body, id"),
        (b"a word " * 2_000_000, "text: [odd]", "more than 10000000 bytes .*larger `max_bytes` than 10,000,000"),
        (b"no archive", "warc: [odd]", "10 bytes that begin no record.*a WARC, ARC or WET record"),
        (b"no table", "parquet: [odd]", "no Parquet file"),
    ],
)
def test_a_check_reads_the_first_records_as_a_run_does(folder, machine, content, source, message):
    (folder / "odd").write_bytes(content)
    step = "extract" if source.startswith("warc") else "content_dedup"
    recipe = f"name: r\nsources:\n- {{name: web, {source}}}\nsteps:\n- {{step: {step}}}\n"
    [line] = lines(check(written(folder, recipe), machine))
    assert re.search(message, line), line


@pytest.mark.parametrize("key", ["id_column", "url_column"])
def test_a_key_that_no_record_has_is_found_before_a_run(folder, machine, key):
    (folder / "odd").write_text('{"text": "a", "id": 1, "metadata": {"url": "u"}}\n{"text": "b"}\n')
    recipe = "name: r\nsources:\n- {{name: web, jsonl: [odd], {}: {}}}\nsteps:\n- {{step: content_dedup}}\n"
    [line] = lines(check(written(folder, recipe.format(key, "adress")), machine))
    assert re.search(
        f"{key}.* is adress, which none of the first 2 records of .*odd has; they have text, id, met", line
    )
    for right in ("id", "metadata.url"):
        assert not lines(check(written(folder, recipe.format(key, right)), machine))


def test_a_key_that_only_some_files_have_is_no_problem(folder, machine):
    for name, row in (("a", '{"text": "a"}'), ("b", '{"text": "b"}'), ("c", '{"text": "c", "link": "u"}')):
        (folder / f"odd-{name}").write_text(f"{row}\n")
    recipe = "name: r\nsources:\n- {{name: web, jsonl: ['odd-*'], url_column: {}}}\nsteps:\n- {{step: content_dedup}}\n"
    assert not lines(check(written(folder, recipe.format("link")), machine))
    [line] = lines(check(written(folder, recipe.format("links")), machine))
    assert "none of the first 3 records of" in line and "odd-a and 2 other files has; they have text, link" in line


def test_a_check_says_which_dates_it_cannot_read(folder, machine):
    (folder / "odd").write_text('{"text": "a", "day": "01/02/2024"}\n{"text": "b", "day": 1704164645}\n')
    recipe = "name: r\nsources:\n- {name: web, jsonl: [odd], date_column: day}\nsteps:\n- {step: content_dedup}\n"
    [remark] = check(written(folder, recipe), machine).remarks
    assert "1 of the first 2 dates in day could not be parsed, such as '01/02/2024'" in remark


def test_a_check_reports_urls_that_no_list_matches(folder, machine):
    links = ("https://a.example/x", "y.html", "a.example/z")
    (folder / "odd").write_text("".join(f'{{"text": "a", "link": "{link}"}}\n' for link in links))
    (folder / "gone.txt").write_text("a.example\n")
    recipe = "name: r\nsources:\n- {name: web, jsonl: [odd], url_column: link}\nsteps:\n- {step: content_dedup}\n"
    assert check(written(folder, recipe), machine).remarks == ()
    [remark] = check(written(folder, f"{recipe}takedowns: [gone.txt]\n"), machine).remarks
    assert "sources.web.url_column: 1 of the first 3 URLs do not begin with" in remark and "'y.html'" in remark


def test_a_check_says_what_the_bucket_tail_holds(folder, machine):
    for name in ("books", "web"):
        (folder / f"{name}.jsonl").write_text('{"text": "a"}\n')
    recipe = (
        "name: r\nsources:\n- {name: web, jsonl: [web.jsonl]}\n- {name: books, jsonl: [books.jsonl]}\nsteps:\n"
        "- {step: perplexity, reference: [books]%s}\n"
    )
    assert check(written(folder, recipe % ""), machine).remarks == ()
    [remark] = check(written(folder, recipe % ", keep_buckets: [head, middle]"), machine).remarks
    assert "drops most code, formulas, dialects and lists" in remark


def test_a_check_says_which_languages_have_words_that_are_too_short_and_its_remedy_works(folder, machine):
    recipe = (
        "name: r\nsources:\n- {name: web, jsonl: [web.jsonl]}\nsteps:\n- {step: language, keep: [ja, ru, th, zh]}\n"
        "- {step: gopher_quality, min_stop_words: 0%s}\n"
    )
    [remark] = check(written(folder, recipe % ""), machine).remarks
    assert "texts in ja, zh are kept by `language` but dropped here" in remark
    [remedy] = re.findall("`(languages: .*)`", remark)
    for given in (remedy, "min_mean_word_length: 1", "min_mean_word_length: null", "definition: dclm"):
        assert check(written(folder, recipe % f", {given}"), machine).remarks == ()


def test_a_check_compares_the_models_of_languages(folder, machine):
    recipe = (
        "name: r\nsources:\n- {name: web, jsonl: [web.jsonl]}\nsteps:\n- {step: language, model: lid.176}\n"
        "- {step: mixed_languages%s}\n"
    )
    [remark] = check(written(folder, recipe % ""), machine).remarks
    assert remark.startswith("steps.mixed_languages.model: is py3langid, but `language` has lid.176")
    assert check(written(folder, recipe % ", model: lid.176"), machine).remarks == ()


URLS = "name: r\nsources:\n- {name: web, %s}\nsteps:\n- {step: content_dedup}\n"


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_a_check_says_which_urls_are_not_read_and_its_remedy_works(format, folder, machine):
    rows = [{"text": f"{n}", "url": f"{n}", "Link": f"https://h{n}.example/a"} for n in range(9)]
    if format == "jsonl":
        (folder / "urls").write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), folder / "urls")

    def remarks(more: str = "") -> list[str]:
        found = check(written(folder, URLS % f"{format}: [urls]{more}"), machine)
        assert lines(found) == []
        return list(found.remarks)

    [remark] = remarks()  # `url` has no URLs
    assert remark.startswith("sources.web: the records have URLs in Link, which are not read")
    [remedy] = re.findall("`(.*?)`", remark)
    assert remarks(f", {remedy}") == [] == remarks(", columns: {host: Link}")


def test_records_without_urls_have_no_remark(folder, machine):
    (folder / "urls").write_text(
        '{"text": "a", "url": null, "link": "see below"}\n{"text": "b", "links": "http://a"}\n'
    )
    assert check(written(folder, URLS % "jsonl: [urls]"), machine).remarks == ()


def test_what_no_recipe_is_has_one_line(folder, machine):
    for data, message in (
        (b"", "is empty"),
        (b"- 1\n", "is a list"),
        (b"\x1f\x8b\x08\x00", "is not UTF-8 text"),
        (b"a: " + b"[" * 5000, "nested"),
        (b"#" * 2_000_000, "name a recipe"),
        (b"seed: 2024-13-45", "put it in quotes"),
    ):
        (folder / "odd.yaml").write_bytes(data)
        [line] = lines(check(str(folder / "odd.yaml"), machine))
        assert message in line


def test_remote_files_are_asked_for_by_a_deep_check_alone(folder, machine, crawl_server):
    address = f"{crawl_server.url}/nothing.jsonl"
    path = written(folder, BASE.replace("{files}/web.jsonl", address))
    found = check(path, machine)
    assert lines(found) == [] and found.unseen == ("remote files of web",)
    assert found.estimate is not None and found.estimate.unsized == ("web",)
    assert found.estimate.seconds is None and found.estimate.bytes is None and found.estimate.largest_job is None
    assert found.estimate.sentence == (
        "estimate: none, because the size of web is unknown. To measure it, run the recipe with `limit: 20000`, then "
        "`gristmill decide capacity`"
    )
    [line] = lines(check(path, machine, deep=True))
    assert "sources.web.jsonl[0]" in line and "does not exist" in line


def test_a_step_of_the_users_is_imported_by_a_deep_check_alone(folder, monkeypatch, machine):
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("GRISTMILL_STEPS", "planted_step_that_fails")
    (folder / "planted_step_that_fails.py").write_text("raise RuntimeError('imported')")
    own = "step: planted_step_that_fails:Mine\n  - step: minhash"
    path = written(folder, BASE.replace("step: minhash", own).replace("bands: 16", "keep: [best]\n    best: of_mine"))
    found = check(path, machine)
    assert lines(found) == [] and "planted_step_that_fails:Mine" in found.unseen[0]
    [line] = lines(check(path, machine, deep=True))
    assert "planted_step_that_fails cannot be imported (planted_step_that_fails.py:1, RuntimeError): imported" in line


def test_a_step_of_a_module_that_is_not_allowed_is_found_unread(folder, monkeypatch, machine):
    monkeypatch.setenv("GRISTMILL_STEPS", "another_module")
    path = written(folder, BASE.replace("step: minhash", "step: own_of_nobody:Mine\n  - step: minhash"))
    [line] = lines(check(path, machine))
    assert "GRISTMILL_STEPS=another_module,own_of_nobody" in line


def test_a_home_that_cannot_be_written_or_has_no_room_is_found(folder, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    path = written(folder, BASE)
    [line] = lines(check(path, MachineSettings(home=str(tmp_path / "file" / "home"))))
    assert "GRISTMILL_HOME" in line and "is a file" in line
    [line] = lines(check(path, MachineSettings(home="/proc/home")))
    assert "cannot be written" in line
    [line] = lines(
        check(
            written(folder, BASE.replace("bands: 16", "bands: 16").replace("dim: 128", "dim: 4000000")),
            MachineSettings(home=str(tmp_path)),
        )
    )
    assert "bytes free" in line and "larger disk" in line


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_cannot_be_read_is_found(folder, machine, tmp_path):
    secret = tmp_path / "secret.jsonl"
    secret.write_text("{}")
    secret.chmod(0)
    [line] = lines(check(written(folder, BASE.replace("{files}/web.jsonl", str(secret))), machine))
    assert "permissions" in line


def test_the_codes_are_those_of_the_models():
    from gristmill.tasks.models import byte_ngrams
    from gristmill.tasks.models.language import lid_176

    assert {label.removeprefix("__label__") for label in lid_176().labels} == CODES["lid.176"]
    assert set(byte_ngrams.model().names) == CODES["py3langid"]


def test_a_quality_without_a_cut_is_said_to_drop_nothing(folder, machine):
    old = "  - step: perplexity\n"
    assert BASE.count(old) == 1

    def remarks(settings: str) -> tuple[str, ...]:
        step = f"  - {{step: quality, reference: [books]{settings}}}\n"
        found = check(written(folder, BASE.replace(old, step + old)), machine)
        assert lines(found) == []
        return found.remarks

    [said] = remarks("")
    assert "would drop almost nothing with it; set `keep_top: 10`" in said and "\n" not in said
    for cut in (", keep_top: 10", ", min_score: 0.5", ", min_score: 0"):
        assert remarks(cut) == ()
    assert check(written(folder, BASE), machine).remarks == ()


def test_a_check_is_written_as_json(folder, machine):
    from pydantic_core import to_json

    found = json.loads(to_json(check(written(folder, BASE.replace("seed: 3", "sed: 3")), machine)))
    assert found["findings"][0]["key"] == "sed" and found["estimate"] is None


def test_the_largest_job_is_named_and_grows_with_partitions_that_are_set():
    """Of 2.5 billion documents: what a partition holds by hand, 90 bytes a band hash of 16 bands."""
    documents, text = 2_500_000_000, 10**13
    recipe = load("dclm")
    [at] = [n for n, step in enumerate(recipe.steps) if step.step == "minhash"]
    by_size = largest_job(recipe, documents, text)
    assert "labels" in by_size.work and 4e9 < by_size.bytes < 6e9
    sixteen = recipe.steps[at].model_copy(update={"partitions": 16})
    few = recipe.model_copy(update={"steps": (*recipe.steps[:at], sixteen, *recipe.steps[at + 1 :])})
    found = largest_job(few, documents, text)
    assert "band hashes" in found.work
    assert found.bytes == pytest.approx(documents * recipe.steps[at].bands * 90 / 16, rel=0.01)


def test_the_largest_job_of_a_small_recipe_is_that_of_its_shards(folder, machine):
    found = check(written(folder, BASE), machine).estimate
    assert found is not None and found.largest_job is not None
    assert "documents of a shard" in found.sentence and found.largest_job.bytes < 1e9


@pytest.mark.parametrize(
    ("normalizer", "changed", "kept"),
    [
        (normalizers.NFKC(), ("forms of one letter ('ﬁ ① Ａ x²' is 'fi 1 A x2')", "letters in two parts"), "quotes"),
        (normalizers.NFC(), ("letters in two parts ('e\u0301' is 'é')",), "forms of one letter"),
        (normalizers.Lowercase(), ("case ('Ab' is 'ab')",), "accents"),
        (normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]), ("accents ('é' is 'e')",), "case"),
        (normalizers.Replace("nothing like this", ""), (), ""),
        (None, (), ""),
    ],
)
def test_a_check_says_what_a_tokenizer_of_ones_own_changes_in_texts(folder, machine, normalizer, changed, kept):
    """The truth is what the library's normalizers are documented to do."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=False))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(False), decoders.ByteLevel()
    tokenizer.train_from_iterator(
        ["a text"], trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    )
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.add_tokens([AddedToken("mill", lstrip=True), AddedToken("stone")])
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.save(str(folder / "tokenizer.json"))
    text = BASE[: BASE.index("tokenizer:")] + "tokenizer: {path: tokenizer.json}\n" + BASE[BASE.index("mixture:") :]
    remarks = " ".join(check(written(folder, text), machine).remarks)
    assert ("tokenizer.json changes texts" in remarks) == bool(changed), remarks
    assert "in tokenizer.json, 'mill' strip adjacent white space (lstrip, rstrip)" in remarks
    for part in changed:
        assert part in remarks, remarks
    assert not kept or kept not in remarks


def test_a_check_says_what_the_recipe_as_a_whole_shows(folder, machine):
    one = (
        "name: r\nsources:\n- {name: web, jsonl: [web.jsonl]}\n- {name: books, jsonl: [books.jsonl]}\n"
        "steps:\n- {step: language, keep: [en, zh, th]}\n- {step: gopher_quality}\nmixture: {weights: {web: 1}}\n"
    )

    def remarks(text: str) -> list[str]:
        return [each for each in check(written(folder, text), machine).remarks if "weight" in each or "stop w" in each]

    words, weights = remarks(one)
    assert words.startswith("steps.gopher_quality: texts in zh, th are kept by `language` but dropped here")
    assert weights == "mixture.weights: books has no weight, so nothing is trained on it"
    assert remarks(one.replace("{web: 1}", "{web: 1, books: 2}").replace("[en, zh, th]", "[en]")) == []
    assert remarks(one.replace("gopher_quality}", "gopher_quality, min_stop_words: null}")) == [weights]
    own = "gopher_quality, stop_words_by_language: {zh: [的], th: [ที่]}}"
    assert remarks(one.replace("gopher_quality}", own)) == [weights]
    assert remarks(one.replace("{weights: {web: 1}}", "{strategy: proportional}")) == [words]


def test_a_check_says_which_settings_of_training_are_not_read(folder, machine):
    def remarks(training: str) -> list[str]:
        text = f"name: r\nsources: [{{name: web, jsonl: [web.jsonl]}}]\nsteps: []\ntraining: {{{training}}}\n"
        return [each for each in check(written(folder, text), machine).remarks if each.startswith("training.")]

    [momentum] = remarks("optimizer: adamw, momentum: 0.9")
    assert momentum.startswith("training.momentum: only read with optimizer muon, but optimizer is adamw")
    [scaling] = remarks("precision: bf16, loss_scaling: false")
    assert scaling.startswith("training.loss_scaling: only read with precision fp16, but precision is bf16")
    assert remarks("momentum: 0.8, precision: fp16, loss_scaling: false") == [] == remarks("optimizer: adamw")


def test_workers_without_a_shard_are_not_counted_and_the_remedy_gives_them_one(tmp_path):
    line = '{"text": "The mill grinds the grain of the whole valley, sack after sack."}\n'
    (tmp_path / "one.jsonl").write_text(line * (20_000_000 // len(line)))
    (tmp_path / "two.jsonl").write_text(line * 100)

    def checked(files: str, workers: int):
        text = f"name: few\nsources:\n  - {{name: web, jsonl: {files}}}\nsteps:\n  - {{step: c4}}\n"
        settings = MachineSettings(home=str(tmp_path / "home"), workers=workers)
        found = check(written(tmp_path, text), settings)
        assert lines(found) == [] and found.estimate is not None
        return found.estimate.cores, [each for each in found.remarks if "shard" in each]

    assert checked("[one.jsonl]", 1) == (1, [])
    assert checked("[one.jsonl, two.jsonl]", 2) == (2, [])
    cores, [remark] = checked("[one.jsonl]", 3)
    assert cores == 1 and remark.startswith("sources.web: the sources are 1 shard, so 1 of 3 workers work; ")
    [remedy] = re.findall("`(.*?)`", remark)
    assert checked(f"[one.jsonl], {remedy}", 3) == (3, [])
    assert checked("[two.jsonl]", 3) == (1, [])  # too small to be divided

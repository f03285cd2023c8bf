"""Scores on tasks against a scorer that takes one choice at a time, and against models that know the answers."""

import json
import math
import random

import numpy as np
import pytest
import torch

from gristmill.storage.tokenizer_files import load_tokenizer
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.decoder import Decoder
from gristmill.training.evaluate.task_scores import example_scores, scored, task_scores
from gristmill.training.evaluate.tasks import Example, Task, UnknownLayoutError, lettered, read_task, read_tasks
from gristmill.training.hub.weights import load_model
from gristmill.training.model_config import ModelConfig
from gristmill.training.run.loop import train
from gristmill.training.world import processes

SEQ_LEN = 24


@pytest.fixture
def world():
    with processes(60) as world:
        yield world


@pytest.fixture(scope="module")
def pieces(corpus):
    return load_tokenizer(corpus.parent / "tokenizer.model")


@pytest.fixture(scope="module")
def model(pieces):
    model = Decoder(ModelConfig(dim=32, layers=2, heads=4, seq_len=SEQ_LEN), pieces.vocab_size)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)
    return model.eval()


def words(draw: random.Random, count: int) -> str:
    return " ".join(draw.choice(["labe", "do", "riba", "é☃", "▁", "mo", "sunk"]) for _ in range(count))


def planted_tasks() -> list[Task]:
    """Contexts from none to beyond the window, choices of 2 to 5, some longer than the window; lengths in disorder."""
    draw = random.Random(1)
    choice, cloze = [], []
    for turn in range(40):
        context = words(draw, draw.choice([0, 1, 3, 30])) + draw.choice(["", " ", "\n", "\nAnswer:"])
        texts = [words(draw, draw.choice([1, 2, 3, 25])) for _ in range(draw.randint(2, 5))]
        choice.append(Example(tuple((context, text) for text in texts), draw.randrange(len(texts))))
        cloze.append(Example(((context, words(draw, 1 + turn % 2)),)))
    schema = [Example(tuple((words(draw, 3), "riba mo") for _ in range(2)), turn % 2) for turn in range(5)]
    return [
        Task("choice", "choice", tuple(choice)),
        Task("cloze", "cloze", tuple(cloze)),
        Task("schema", "choice", tuple(schema)),
    ]


@torch.no_grad()
def one_at_a_time(model, pieces, context: str, continuation: str) -> tuple[float, bool]:
    """Nats of a continuation and whether each token is the likeliest: a forward pass a token, no batch, no padding."""
    space = "" if not context.strip() or context[-1].isspace() or continuation[0].isspace() else " "
    kept = context.rstrip()
    start = [pieces.end_of_text, *pieces.encode(kept)]
    ids = pieces.encode(context[len(kept) :] + space + continuation)
    nats, greedy = 0.0, True
    for at, token in enumerate(ids):
        first = at // SEQ_LEN * SEQ_LEN  # of its piece
        end = min(first + SEQ_LEN, len(ids))
        seen = (start + ids)[max(0, len(start) + end - SEQ_LEN - 1) : len(start) + at]
        chances = model(torch.tensor([seen]))[0, -1].double().log_softmax(-1)
        nats -= float(chances[token])
        greedy &= int(chances.argmax()) == token
    return nats, greedy


@pytest.mark.extended
def test_scores_against_one_choice_at_a_time(model, pieces, world):
    tasks = planted_tasks()
    found = task_scores(model, tasks, pieces, world)
    hits, by_characters, by_bytes, nats, size = [], [], [], 0.0, 0
    for example in tasks[0].examples:
        scores = [-one_at_a_time(model, pieces, *pair)[0] for pair in example.pairs]
        sizes = [len(text.encode()) for _, text in example.pairs]
        hits.append(max(range(len(scores)), key=scores.__getitem__) == example.answer)
        characters = [len(text) for _, text in example.pairs]
        for lengths, found_hits in ((characters, by_characters), (sizes, by_bytes)):
            shares = [score / n for score, n in zip(scores, lengths, strict=True)]
            found_hits.append(max(range(len(scores)), key=shares.__getitem__) == example.answer)
        nats, size = nats - scores[example.answer], size + sizes[example.answer]
    figures = found["choice"]
    assert figures["acc"] == np.mean(hits) and figures["acc_bytes"] == np.mean(by_bytes)
    assert figures["acc_norm"] == np.mean(by_characters)
    assert hits != by_bytes
    assert figures["acc_stderr"] == pytest.approx(np.std(hits, ddof=1) / math.sqrt(40))
    assert figures["chance"] == pytest.approx(np.mean([1 / len(example.pairs) for example in tasks[0].examples]))
    assert figures["bits_per_byte"] == pytest.approx(nats / math.log(2) / size, rel=1e-5)
    assert figures["examples"] == 40 and 0 < figures["cut"] < sum(len(example.pairs) for example in tasks[0].examples)
    alone = [one_at_a_time(model, pieces, *example.pairs[0]) for example in tasks[1].examples]
    assert found["cloze"]["acc"] == np.mean([greedy for _, greedy in alone])
    assert found["cloze"]["perplexity"] == pytest.approx(math.exp(np.mean([n for n, _ in alone])), rel=1e-4)
    [one, *_] = example_scores(model, tasks, pieces, world)
    right = [one_at_a_time(model, pieces, *example.pairs[example.answer])[0] for example in tasks[0].examples]
    assert one.bits == pytest.approx(np.array(right) / math.log(2), rel=1e-4)
    assert one.hits.tolist() == hits and one.hits_norm.tolist() == by_characters and one.hits_bytes.tolist() == by_bytes
    # the order and the size of batches decide nothing
    alone = task_scores(model, tasks[::-1], pieces, world, tokens=1)
    for name, figures in found.items():
        assert alone[name] == pytest.approx(figures, rel=1e-5)


def test_letters_answer_for_choices_that_are_listed():
    example = Example((("Question: Why?\nAnswer:", " so"), ("Question: Why?\nAnswer:", "if")), 1)
    made = lettered(Task("quiz", "choice", (example,)))
    asked = "Question: Why?\n A. so\n B. if\nAnswer:"
    assert made == Task("quiz:letters", "choice", (Example(((asked, "A"), (asked, "B")), 1),))
    assert lettered(Task("cloze", "cloze", (Example((("a", "b"),)),))) is None
    assert lettered(Task("schema", "choice", (Example((("a", "c"), ("b", "c"))),))) is None


class Knows(torch.nn.Module):
    """A model that finds every token of some texts certain behind the ones before it, and nothing else."""

    def __init__(self, pieces, texts: list[str]) -> None:
        super().__init__()
        self.config = ModelConfig(dim=32, heads=4, seq_len=64)
        self.embed_tokens = torch.nn.Embedding(pieces.vocab_size, 1)
        self.next = {}
        for text in texts:
            ids = [pieces.end_of_text, *pieces.encode(text)]
            self.next |= {tuple(ids[:at]): ids[at] for at in range(1, len(ids))}

    def scores(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(*tokens.shape, self.embed_tokens.num_embeddings)
        for row, ids in enumerate(tokens.tolist()):
            for at in range(len(ids)):
                if (token := self.next.get(tuple(ids[: at + 1]))) is not None:
                    logits[row, at, token] = 100.0
        losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
        return torch.stack([losses, ((logits.argmax(-1) != targets) & (targets >= 0)).float()])


def test_a_model_that_knows_the_answers_is_always_right(pieces, world):
    draw = random.Random(2)
    examples = [
        Example(tuple((f"{words(draw, 4)} {i}", f"{words(draw, 2)} {c}") for c in "abc"), i % 3) for i in range(9)
    ]
    lasts = [Example(((f"{words(draw, 5)} {i}", "riba"),)) for i in range(4)]
    right = [" ".join(example.pairs[example.answer]) for example in examples]
    told = [*right, *(" ".join(example.pairs[0]) for example in lasts[:3])]
    tasks = [Task("choice", "choice", tuple(examples)), Task("last", "cloze", tuple(lasts))]
    found = task_scores(Knows(pieces, told), tasks, pieces, world)
    assert found["choice"]["acc"] == found["choice"]["acc_norm"] == found["choice"]["acc_bytes"] == 1
    assert found["choice"]["bits_per_byte"] == pytest.approx(0, abs=1e-6) and found["choice"]["acc_stderr"] == 0
    assert found["last"]["acc"] == 0.75


PUBLISHED = {
    "ours": ({"context": "c", "choices": ["a", "b"], "answer": 1}, (("c", "a"), ("c", "b")), 1),
    "last": ({"context": "c d", "target": "e"}, (("c d", "e"),), 0),
    "mosaic": (
        {"query": "Question: q?\n", "choices": ["a", "b"], "gold": 1},
        (("Question: q?\nAnswer:", "a"), ("Question: q?\nAnswer:", "b")),
        1,
    ),
    "mosaic_plain": (
        {"query": "The man ran, so", "choices": ["a", "b"], "gold": 0},
        (("The man ran, so", "a"), ("The man ran, so", "b")),
        0,
    ),
    "mosaic_letters": (
        {"query": "Question: q\nChoices:\nA. x\nB. y\nAnswer:", "choices": ["A", "B"], "gold": 0},
        (("Question: q\nChoices:\nA. x\nB. y\nAnswer:", "A"), ("Question: q\nChoices:\nA. x\nB. y\nAnswer:", "B")),
        0,
    ),
    "mosaic_schema": (
        {"context_options": ["Ann so Ann", "Ann so Eve"], "continuation": "won.", "gold": 1},
        (("Ann so Ann", "won."), ("Ann so Eve", "won.")),
        1,
    ),
    "mosaic_lambada": ({"context": "c d", "continuation": "e"}, (("c d", "e"),), 0),
    "arc": (
        {"id": "1", "question": "q?", "choices": {"text": ["a", "b"], "label": ["1", "2"]}, "answerKey": "2"},
        (("Question: q?\nAnswer:", "a"), ("Question: q?\nAnswer:", "b")),
        1,
    ),
    "piqa": (
        {"goal": "g", "sol1": "a", "sol2": "b", "label": 0},
        (("Question: g\nAnswer:", "a"), ("Question: g\nAnswer:", "b")),
        0,
    ),
    "hellaswag": (
        {
            "ind": 1,
            "activity_label": "Roof",
            "ctx_a": "A man [header] sits.",
            "ctx_b": "he",
            "ctx": "",
            "endings": ["a [title] b", "c"],
            "label": "1",
        },
        (("Roof: A man sits. He", "a. b"), ("Roof: A man sits. He", "c")),
        1,
    ),
    "winogrande": (
        {"sentence": "Ann beat Eve because _ was fast.", "option1": "Ann", "option2": "Eve", "answer": "1"},
        (("Ann beat Eve because Ann", "was fast."), ("Ann beat Eve because Eve", "was fast.")),
        0,
    ),
    "boolq": (
        {"question": "is it", "passage": "p", "answer": True},
        (("p\nQuestion: is it?\nAnswer:", "no"), ("p\nQuestion: is it?\nAnswer:", "yes")),
        1,
    ),
}


@pytest.mark.parametrize("layout", PUBLISHED)
def test_published_layouts_are_known_by_their_fields(layout, tmp_path):
    row, pairs, answer = PUBLISHED[layout]
    path = tmp_path / "some.jsonl"
    path.write_text(json.dumps(row) + "\n\n")
    task = read_task(path)
    assert task == Task("some", "cloze" if len(pairs) == 1 else "choice", (Example(pairs, answer),))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "is not valid JSON"),
        ('{"context": "c", "choices": ["a"]}', "KeyError: 'answer'"),
        ('{"context": "c", "choices": ["a", "b"], "answer": 2}', "the right answer is number 2 of 2, from 0"),
        ('{"context": "c", "choices": ["a", "b"], "answer": -1}', "the right answer is number -1 of 2"),
        ('{"context": "c", "choices": ["a", " "], "answer": 0}', "a choice is empty"),
        ('{"context": "c", "choices": ["a", "b"], "answer": "0"}', "which is not a number of a choice"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(line, said, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"context": "c", "choices": ["a", "b"], "answer": 0}\n' + line + "\n")
    with pytest.raises(ValueError, match=r"bad\.jsonl:2: ") as error:
        read_task(path)
    assert said in str(error.value)


def test_what_is_no_task_is_named_and_passed_over(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no \\*.jsonl file"):
        read_tasks(tmp_path)
    (tmp_path / "code.jsonl").write_text('{"task_id": 1, "prompt": "p"}\n')
    (tmp_path / "notes.txt").write_text("no task")
    with pytest.raises(UnknownLayoutError, match="its fields are prompt, task_id"):
        read_task(tmp_path / "code.jsonl")
    with pytest.raises(ValueError, match="has no known task: code.jsonl"):
        read_tasks(tmp_path)
    (tmp_path / "last.jsonl").write_text('{"context": "c", "target": "d"}\n')
    tasks, others = read_tasks(tmp_path)
    assert [task.name for task in tasks] == ["last"] and len(others) == 1 and "code.jsonl" in others[0]


@pytest.mark.extended
def test_a_training_is_scored_while_it_goes_on(make_run, corpus, tmp_path):
    lines = [{"context": "a", "choices": ["b", "c d", "e"], "answer": k % 3} for k in range(5)]
    (tmp_path / "guess.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = make_run(tmp_path / "out", training={"steps": 8, "eval_every": 4, "eval_tasks": str(tmp_path)})
    train(run)
    found = [json.loads(line) for line in (run.out / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in found if "tasks/guess/acc" in line] == [4, 8]
    manifest = load_training_manifest(corpus)
    processor = load_tokenizer(manifest.tokenizer.path)
    with processes(60) as world:
        truth = scored(task_scores(load_model(run.out), read_tasks(tmp_path)[0], processor, world))
    assert {name: value for name, value in found[-1].items() if name.startswith("tasks/")} == pytest.approx(truth)

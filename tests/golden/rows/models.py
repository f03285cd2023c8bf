"""Rows of learned filters: perplexity, quality, harm, embeddings and their clusters, buckets of quality."""

from tests.golden.rows.row import ANY, BOOKS, COPIES, EDGES, GROUPS, WEB, Row, Settings, row

LENGTH: Settings = {"step": "ccnet", "min_characters": 5}
SMALL: Settings = {"reference": ["books"], "dimensions": 4, "buckets": 500, "epochs": 3}
MODELS = {code: f"{{fixture}}/models/{code}.arpa.bin" for code in ("en", "de")}
HARM: Settings = {"model": "{fixture}/models/harm.bin", "label": "wild"}
EMBEDDER: Settings = {"step": "embedding", "model": "{fixture}/models/embedder"}
HEADS = {name: f"{{fixture}}/models/{name}.safetensors" for name in ("grade", "kind")}
VECTORS = ("embedding_vectors",)
SCORED = (*VECTORS, "embedding", "embedding_cut")


def _perplexity() -> list[Row]:
    trained = ("perplexity_model", "perplexity", "perplexity_bucket", "perplexity_cut")
    named = trained[1:]
    return [
        row("perplexity", [WEB, BOOKS], [{"step": "perplexity", "reference": ["books"], "order": 3}], trained),
        row(
            "perplexity-between",
            [WEB, BOOKS],
            [
                {
                    "step": "perplexity",
                    "reference": ["books"],
                    "order": 2,
                    "min_percentile": 10,
                    "max_percentile": 50,
                    "head_percentile": 20,
                    "middle_percentile": 75,
                    "keep_buckets": ["head", "middle"],
                }
            ],
            trained,
        ),
        row(
            "perplexity-named",
            [WEB, EDGES],
            [
                ANY,
                {"step": "perplexity", "models": MODELS, "unit": "document", "min_documents": 5, "max_percentile": 90},
            ],
            named,
        ),
        row(
            "perplexity-lines",
            [WEB, EDGES],
            [
                ANY,
                {
                    "step": "perplexity",
                    "models": MODELS,
                    "lines": True,
                    "min_documents": 50,
                    "cutoffs": "{fixture}/models/cutoffs.csv",
                    "keep_buckets": ["middle", "tail"],
                },
            ],
            named,
        ),
    ]


def _quality() -> list[Row]:
    covers = ("quality_model", "quality", "quality_cut")
    return [
        row("quality", [WEB, BOOKS], [{"step": "quality", **SMALL, "min_score": 0.5}], covers),
        row(
            "quality-top",
            [WEB, COPIES, BOOKS],
            [
                {
                    "step": "quality",
                    **SMALL,
                    "against": ["web"],
                    "keep_top": 30,
                    "documents": 60,
                    "word_ngrams": 1,
                    "lowercase": False,
                    "characters": 200,
                    "seed": 2,
                }
            ],
            covers,
        ),
        row(
            "quality-passes",
            [WEB, BOOKS],
            [{"step": "quality", **{**SMALL, "epochs": None}, "learning_rate": 1.0, "keep_top": 50}],
            covers,
        ),
        row(
            "quality-named",
            [WEB, EDGES],
            [{"step": "quality", "model": HARM["model"], "label": "tame", "keep_top": 50}],
            covers[1:],
        ),
    ]


def _harm() -> list[Row]:
    return [
        row("toxicity", [WEB, EDGES], [{"step": "toxicity", **HARM, "max_score": 0.5}], ("toxicity", "toxicity_cut")),
        row(
            "toxicity-top",
            [WEB, BOOKS],
            [{"step": "toxicity", **HARM, "drop_top": 20, "reference": ["books"], "lowercase": True}],
            ("toxicity", "toxicity_cut"),
        ),
        row(
            "adult_content",
            [WEB, EDGES],
            [{"step": "adult_content", **HARM, "max_lines": 0.1, "line_score": 0.6}],
            ("adult_content", "adult_content_cut"),
        ),
        row(
            "adult_content-others",
            [WEB],
            [{"step": "adult_content", **HARM, "max_lines": 0.0, "characters": 60, "max_score": 0.7}],
            ("adult_content", "adult_content_cut"),
        ),
    ]


def _distilled() -> list[Row]:
    covers = ("distill_model", "distill", "distill_cut")
    some = {"name": "mills", "jsonl": ["{fixture}/mills.jsonl"], "id_column": "id", "date_column": "date"}
    learned: Settings = {"step": "distill", "of": "ccnet_characters", "held_out": 0.4}
    fast: Settings = {"dimensions": 4, "buckets": 500, "epochs": 3}
    return [
        row(
            "distill",
            [WEB, BOOKS],
            [LENGTH, {**learned, "positive": 120, "fasttext": fast, "min_score": 0.45, "reference": ["books"]}],
            covers,
        ),
        row(
            "distill-sample",
            [WEB, EDGES],
            [
                LENGTH,
                {
                    **learned,
                    "positive": 60,
                    "annotations": 40,
                    "seed": 3,
                    "keep_top": 40,
                    "fasttext": {**fast, "word_ngrams": 1, "lowercase": False, "characters": 200},
                },
            ],
            covers,
        ),
        row(
            "distill-weight",
            [WEB, BOOKS],
            [LENGTH, {**learned, "positive": 120, "weight": "ccnet_characters", "fasttext": fast}],
            covers,
        ),
        row(
            "distill-head",
            [some],
            [LENGTH, {**learned, "kind": "head", "model": EMBEDDER["model"], "positive": 30, "penalty": 1.0}],
            (*VECTORS, *covers),
            floats=(*VECTORS, *covers),
        ),
    ]


MILLS: Settings = {"name": "mills", "jsonl": ["{fixture}/mills.jsonl"], "id_column": "id", "date_column": "date"}


def _embedded() -> list[Row]:
    rounded = ("embedding_vectors", "embedding", "embedding_cut")  # its ledger has the scores
    near: Settings = {"step": "semantic_dedup"}
    return [
        row("embedding", [MILLS], [{**EMBEDDER, "heads": HEADS, "min_score": {"grade": 0.1}}], SCORED, floats=rounded),
        row(
            "embedding-top",
            [MILLS, BOOKS],
            [{**EMBEDDER, "heads": HEADS, "keep_top": {"kind": 40}, "reference": ["books"]}],
            SCORED,
            floats=rounded,
        ),
        row(
            "embedding-cls",
            [MILLS],
            [{**EMBEDDER, "pooling": "cls", "normalize": False, "prefix": "query: ", "max_tokens": 8}],
            VECTORS,
            floats=rounded,
        ),
        row("semantic", [MILLS], [EMBEDDER, near], ("semantic_duplicates",), floats=rounded),
        row(
            "semantic-clusters",
            [MILLS],
            [
                LENGTH,
                EMBEDDER,
                {**near, "clusters": 4, "similarity": 0.99, "keep": ["best", "newest"], "best": "ccnet_characters"},
            ],
            ("semantic_duplicates",),
            floats=rounded,
        ),
        row(
            "semantic-oldest",
            [MILLS, BOOKS],
            [{**EMBEDDER, "reference": ["books"]}, {**near, "similarity": 0.9, "keep": ["oldest", "source"]}],
            ("semantic_duplicates",),
            floats=rounded,
        ),
        row("diversified", [MILLS], [EMBEDDER, {"step": "diversify", "clusters": 5}], ("diversified",), floats=rounded),
        row(
            "diversified-longest",
            [MILLS, BOOKS],
            [
                {**EMBEDDER, "reference": ["books"]},
                {"step": "diversify", "clusters": 8, "most": 0.5, "keep": ["longest"]},
            ],
            ("diversified",),
            floats=rounded,
        ),
    ]


def _buckets() -> list[Row]:
    scores: Settings = {"step": "quality_bucket", "scores": ["gopher_quality_words", "gopher_quality_alpha_words"]}
    return [
        row("quality_bucket", [WEB, EDGES], [{"step": "gopher_quality", "min_words": 3}, scores], ("quality_bucket",)),
        row(
            "quality_bucket-few",
            [WEB, GROUPS],
            [
                {"step": "gopher_quality", "min_words": None, "min_stop_words": None},
                {**scores, "inverse": ["gopher_quality_mean_word_length"], "buckets": 7},
            ],
            ("quality_bucket",),
        ),
        row(
            "quality_bucket-scored",
            [WEB, BOOKS],
            [
                {"step": "quality", **SMALL, "min_score": 0.0},
                {"step": "quality_bucket", "scores": ["quality"], "buckets": 4},
            ],
            ("quality_bucket",),
        ),
    ]


ROWS = (*_perplexity(), *_quality(), *_harm(), *_embedded(), *_distilled(), *_buckets())

"""Models of languages for the step `perplexity`: KenLM's file, SentencePiece's, and `LANGUAGE.arpa.bin.json`, which
says what they are and what they were trained on. Models of somebody else, as CCNet's, have no such description.
"""

from typing import TYPE_CHECKING, Any

import wrapt

from gristmill.storage import files
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.models.model_files import ModelFileError, check_kenlm, check_sentencepiece

if TYPE_CHECKING:
    import kenlm
else:
    kenlm = wrapt.lazy_import("kenlm")

MODEL_SUFFIX, PIECES_SUFFIX = ".arpa.bin", ".sp.model"  # as cc_net names them


def pieces_of(model: str) -> str:
    """The address of the SentencePiece model that belongs to a KenLM model, `en.sp.model` to `en.arpa.bin`."""
    return model.removesuffix(MODEL_SUFFIX) + PIECES_SUFFIX


def description(model: str) -> str:
    """Where the description of a KenLM model is."""
    return f"{model}.json"


def write(model: str, settings: Settings, measures: dict[str, Any]) -> None:
    """Describe a model and its SentencePiece model: their sizes and digests, the settings, and `measures`."""
    described = {
        "files": {path.rsplit("/", 1)[-1]: _facts(path) for path in (model, pieces_of(model))},
        "settings": settings.model_dump(mode="json"),
        **measures,
    }
    files.write_json(description(model), described)


def check(model: str) -> None:
    """Raise ModelFileError, or FileNotFoundError, unless a model and its SentencePiece model are there, are what their
    names say, and are those that the description, if there is one, describes."""
    described = _described(model)
    for path, look in ((model, check_kenlm), (pieces_of(model), check_sentencepiece)):
        if not files.exists(path):
            remedy = "train one by `gristmill train lm`, or correct the path"
            raise FileNotFoundError(f"{path} does not exist; {remedy}")
        look(files.local_copy(path))
        name = path.rsplit("/", 1)[-1]
        if described and _facts(path) != described.get(name):
            raise ModelFileError(
                f"{path} is not the file that {description(model)} describes; copy both again, or train it anew by "
                "`gristmill train lm`"
            )
    _check_loads(model)


def _described(model: str) -> dict[str, Any]:
    """What the description says of the files; nothing where there is none."""
    if not files.exists(description(model)):
        return {}
    try:
        return dict(files.read_json(description(model))["files"])
    except (ValueError, LookupError, TypeError) as error:
        raise ModelFileError(
            f"{description(model)} is no description of {model} ({error}); copy it again, or remove it"
        ) from error


def _check_loads(model: str) -> None:
    """KenLM compares the file's size with what its header says."""
    config = kenlm.Config()
    config.load_method = kenlm.LoadMethod.LAZY
    try:
        kenlm.Model(files.local_copy(model), config)
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ModelFileError(f"{model} is no whole KenLM model: {reason}; copy or make it again") from error


def _facts(path: str) -> dict[str, Any]:
    return {"bytes": files.info(path)["size"], "digest": files.checksum(path)}


def names(folder: str, language: str) -> tuple[str, str]:
    """Addresses of the models of a language in a folder: KenLM's and SentencePiece's."""
    model = files.join(folder, f"{language}.arpa.bin")
    return model, pieces_of(model)

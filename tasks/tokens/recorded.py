"""Where a stage of tokens has the files of a shard, and what it has recorded of them."""

from gristmill.storage import files, layout
from gristmill.storage.damage import RecordedFile
from gristmill.storage.tokens.token_shards import bin_path

PHASE = "encode"  # in which a stage of tokens writes its shards
SPLIT = "train"  # of the names of files: those of evaluation documents are `heldout`


def index_path(folder: str, shard: int) -> str:
    """The Parquet file that says where a shard's documents are among its tokens."""
    return bin_path(folder, SPLIT, shard).removesuffix(".bin") + ".parquet"


def recorded(folder: str, shard: int) -> dict[str, RecordedFile]:
    """The files of a shard, by name. One request, however many shards there are. Raises DamagedFileError."""
    found = layout.done_part(folder, PHASE, shard).files
    return {name: RecordedFile(files.join(folder, name), facts["content"]) for name, facts in found.items()}


def tokens_of(folder: str, shard: int) -> RecordedFile:
    """The file with the tokens of a shard. Raises DamagedFileError."""
    return recorded(folder, shard)[bin_path("", SPLIT, shard).lstrip("/")]

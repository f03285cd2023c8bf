"""Reads torch's checkpoints without running anything that a file names.

torch.distributed.checkpoint keeps the layout of a checkpoint in a pickle. A pickle is a program: reading one can call
any function. The reader here knows only the instructions that a layout needs, records the named class of each object
instead of calling it, and builds torch's own objects from what it has checked. So a checkpoint in a folder that
others can write, or that comes from elsewhere, runs no code.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    STORAGE_TYPES,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

METADATA = ".metadata"
MAX_BYTES = 1 << 30  # of a layout; one with 60,000 shards takes 10 MB

_TORCH_METADATA = "torch.distributed.checkpoint.metadata"
# What a layout may name; pathlib is for the folder that the checkpoint was written to.
_KNOWN = {
    *((_TORCH_METADATA, name) for name in ("Metadata", "TensorStorageMetadata", "TensorProperties")),
    *((_TORCH_METADATA, name) for name in ("ChunkStorageMetadata", "MetadataIndex", "StorageMeta")),
    (_TORCH_METADATA, "_MEM_FORMAT_ENCODING"),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
    ("torch", "Size"),
    ("pathlib", "PosixPath"),
    ("pathlib._local", "PosixPath"),
}
_DTYPES = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}


class CheckpointReader(dcp.FileSystemReader):
    """Reads a checkpoint in a local folder, for `torch.distributed.checkpoint.load`. Raises ValueError as
    `read_layout`, when it is made."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.layout = read_layout(Path(path) / METADATA)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        self.layout.storage_meta = StorageMeta(load_id=self.load_id)
        return self.layout


def read_layout(path: Path) -> Metadata:
    """The layout in a file that torch.distributed.checkpoint wrote: sizes and types of the tensors, and which bytes of
    which file have each of their parts.

    Raises ValueError for a file that holds anything else, that names files outside of its folder, or that is larger
    than MAX_BYTES.
    """
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    try:
        if len(data) > MAX_BYTES:
            raise _LayoutError(f"it is larger than {MAX_BYTES:,} bytes")
        return _metadata(_LayoutUnpickler(io.BytesIO(data)).load())
    except (_LayoutError, pickle.UnpicklingError) as error:
        reason = str(error)
    except (ValueError, TypeError, LookupError, EOFError, AttributeError, OverflowError, RecursionError) as error:
        reason = f"it cannot be decoded ({type(error).__name__})"
    raise ValueError(
        f"{path} is not the layout of a checkpoint: {reason}. Nothing in it was executed; use another checkpoint"
    )


class _LayoutError(Exception):
    """What is wrong with a layout."""


class _Name(str):
    """The name of a class or a function, which is never looked up."""

    __slots__ = ()


class _Object:
    """An object as a pickle describes it: what it is called with, and its state."""

    __slots__ = ("arguments", "name", "state")

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name, self.arguments = name, arguments
        self.state: Any = None


# The instructions of a layout: plain values, containers, and references to what was read before. Those that are not
# here, such as the ones for persistent ids, extensions and numbered memo slots, end the reading.
_INSTRUCTIONS = (
    *(pickle.PROTO, pickle.FRAME, pickle.STOP, pickle.MARK, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE),
    *(pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1, pickle.SHORT_BINUNICODE, pickle.BINUNICODE),
    *(pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
    *(pickle.EMPTY_LIST, pickle.APPEND, pickle.APPENDS, pickle.EMPTY_DICT, pickle.SETITEM, pickle.SETITEMS),
    *(pickle.MEMOIZE, pickle.BINGET, pickle.LONG_BINGET, pickle.STACK_GLOBAL),
)
# typeshed has the types of Python's own unpickler, whose instructions are methods
_PYTHON: Any = pickle._Unpickler


class _LayoutUnpickler(_PYTHON):
    """Python's unpickler with the instructions of a layout, in which objects are recorded and not made."""

    def find_class(self, module: str, name: str) -> _Name:
        if (module, name) not in _KNOWN and not (module == "torch" and name in _DTYPES):
            raise _LayoutError(f"it refers to {module}.{name}, which is not part of a layout")
        return _Name(name)

    def record_object(self) -> None:
        """For REDUCE and NEWOBJ: a name and a tuple become an object."""
        arguments = self.stack.pop()
        name = self.stack.pop()
        if not isinstance(name, _Name) or not isinstance(arguments, tuple):
            raise _LayoutError("it calls something that is not a class")
        self.stack.append(_Object(name, arguments))

    def record_state(self) -> None:
        """For BUILD."""
        state = self.stack.pop()
        if not isinstance(self.stack[-1], _Object):
            raise _LayoutError("it gives a state to something that is not an object")
        self.stack[-1].state = state

    def refuse(self) -> NoReturn:
        raise _LayoutError("it has an instruction that no layout has")

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **dict.fromkeys(range(256), refuse),
        **{code[0]: _PYTHON.dispatch[code[0]] for code in _INSTRUCTIONS},
        pickle.REDUCE[0]: record_object,
        pickle.NEWOBJ[0]: record_object,
        pickle.BUILD[0]: record_state,
    }


def _metadata(value: Any) -> Metadata:
    state = _state(value, "Metadata")
    storage = {_index(key): _place(info) for key, info in _instance(state["storage_data"], dict).items()}
    entries = _instance(state["state_dict_metadata"], dict).items()
    # each part of a tensor is stored once; counted first, since a short file can repeat a long list
    chunks = (_state(entry, "TensorStorageMetadata")["chunks"] for _, entry in entries)
    if sum(len(_instance(some, list)) for some in chunks) > len(storage):
        raise _LayoutError("its tensors have more parts than are stored")
    tensors: dict[str, STORAGE_TYPES] = {_instance(name, str): _tensor(entry) for name, entry in entries}
    return Metadata(state_dict_metadata=tensors, storage_data=storage, version=state.get("version"))


def _tensor(value: Any) -> TensorStorageMetadata:
    state = _state(value, "TensorStorageMetadata")
    properties = _instance(_instance(state["properties"], _Object).state, tuple)
    return TensorStorageMetadata(
        properties=TensorProperties(dtype=_DTYPES[_instance(properties[0], _Name)]),
        size=_size(state["size"]),
        chunks=[_chunk(chunk) for chunk in state["chunks"]],
    )


def _chunk(value: Any) -> ChunkStorageMetadata:
    state = _state(value, "ChunkStorageMetadata")
    return ChunkStorageMetadata(offsets=_size(state["offsets"]), sizes=_size(state["sizes"]))


def _index(value: Any) -> MetadataIndex:
    state = _state(value, "MetadataIndex")
    offset, number = state.get("offset"), state.get("index")
    return MetadataIndex(
        _instance(state["fqn"], str),
        None if offset is None else _size(offset),
        None if number is None else _count(number),
    )


def _place(value: Any) -> _StorageInfo:
    state = _state(value, "_StorageInfo")
    name = _instance(state["relative_path"], str)
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise _LayoutError(f"it refers to the file {name!r}, which is not in its folder")
    if state.get("transform_descriptors"):
        raise _LayoutError("its tensors are transformed, unlike those that training writes")
    return _StorageInfo(name, _count(state["offset"]), _count(state["length"]))


def _size(value: Any) -> torch.Size:
    if not isinstance(value, _Object) or value.name != "Size" or len(value.arguments) != 1:
        raise _LayoutError("a size is of another type")
    return torch.Size([_count(number) for number in _instance(value.arguments[0], tuple)])


def _state(value: Any, name: str) -> dict[str, Any]:
    """The fields of an object whose named class is `name`."""
    if not isinstance(value, _Object) or value.name != name or value.arguments:
        raise _LayoutError(f"it has another object instead of {name}")
    return _instance(value.state, dict)


def _instance(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise _LayoutError(f"it has {type(value).__name__} in the place of {kind.__name__}")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise _LayoutError("a number is not a size")
    return value

"""Plain data as bytes, and what goes before it in a pipe. Tuples arrive as lists."""

import struct
from typing import Any

import msgpack

# of a call: its length; where it is in the ring, or -1 where it follows; whether all results up to its own are
# wanted at once
CALL = struct.Struct("<Qq?")
# of a result, and of what the zygote says: its length
RESULT = struct.Struct("<Q")


def pack(value: Any) -> bytes:
    """Raises TypeError, ValueError or OverflowError for what msgpack does not know.

    Text may hold lone surrogates, as Python's own does: it arrives as it was.
    """
    return msgpack.packb(value, unicode_errors="surrogatepass")


def unpack(data: bytes | memoryview) -> Any:
    return msgpack.unpackb(data, unicode_errors="surrogatepass", strict_map_key=False)


def framed(value: Any) -> bytes:
    packed = pack(value)
    return RESULT.pack(len(packed)) + packed

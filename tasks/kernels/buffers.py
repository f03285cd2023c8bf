"""The bytes and offsets under an Arrow string column, as numba sees them."""

from typing import Any

import numpy as np
import pyarrow as pa
from llvmlite import ir
from numba import extending, types

# numba's stubs would have the callers pass the typing context.
intrinsic: Any = extending.intrinsic


def utf8(column: pa.Array | pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """UTF-8 bytes (uint8) and n+1 offsets (int64) of a string column without nulls.

    Document `i` is `data[offsets[i]:offsets[i + 1]]`. A large_string array in one chunk is not copied; other
    layouts are copied once, so at most one further copy of the column is held. Both are read-only: numba would
    compile a kernel once more for arrays that are not.

    Raises ValueError for a column that holds nulls or a text that is no UTF-8: kernels follow lead bytes without a look
    whether the text goes on. The check reads 2 GB a second, of ASCII 20.
    """
    if column.null_count:
        raise ValueError(f"the text column has {column.null_count} nulls; drop these documents first")
    if not pa.types.is_large_string(column.type):
        column = column.cast(pa.large_string())  # before the chunks are joined: 32-bit offsets end at 2 GiB
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise ValueError(f"the text column has values that are not text: {error}") from error
    data, offsets = np.empty(0, np.uint8), np.zeros(1, np.int64)
    if len(column):
        _, offsets, buffer = column.buffers()
        offsets = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
        data = np.frombuffer(buffer, np.uint8) if buffer is not None else data
    data.flags.writeable = offsets.flags.writeable = False
    return data, offsets


@intrinsic
def byte(typing_context, data, i):
    """`data[i]`, uint8, for 0 <= i < len(data): numba's own indexing also tests for a negative index."""

    def load(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.load(builder.gep(array.data, [arguments[1]]))

    return types.uint8(data, types.int64), load


@intrinsic
def block(typing_context, data, i):
    """The eight bytes `data[i:i + 8]` as one uint64 in the machine's order, for 0 <= i <= len(data) - 8."""

    def load(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.gep(array.data, [arguments[1]])
        return builder.load(builder.bitcast(address, ir.IntType(64).as_pointer()), align=1)

    return types.uint64(data, types.int64), load


@intrinsic
def put_block(typing_context, data, i, value):
    """Write the uint64 `value` as the eight bytes `data[i:i + 8]`, the counterpart of `block`."""

    def store(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.gep(array.data, [arguments[1]])
        builder.store(arguments[2], builder.bitcast(address, ir.IntType(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(data, types.int64, types.uint64), store


@intrinsic
def trailing_zeros(typing_context, bits):
    """Number of zero bits below the lowest one of a uint64, int64; 64 of 0."""

    def count(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), count


@intrinsic
def ones(typing_context, bits):
    """Number of ones among the bits of a uint64, as uint64."""

    def count(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), count

"""DuckDB connections that read only the tables they are given. Separate: importing it imports DuckDB."""

import secrets
import tempfile

import duckdb

from gristmill.storage import leftovers

# A query sees the tables that are registered, and nothing else: no files, network, Python variables or extensions.
# A division by zero, and a function outside of its domain under `try`, is null.
_SETTINGS = {
    "threads": "1",  # rows keep their order, and sums of floats their value
    "TimeZone": "'UTC'",
    "ieee_floating_point_ops": "false",
    "error_on_division_by_zero": "false",
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "enable_external_access": "false",
    "lock_configuration": "true",  # the last: after it nothing can be set
}


def connect(memory: int | None = None) -> duckdb.DuckDBPyConnection:
    """A database in memory, in UTC, on one thread, whose settings queries cannot change. `memory`: bytes that it may
    hold, by default four fifths of the machine's."""
    connection = duckdb.connect(":memory:")
    # What exceeds memory is spilled to a folder that DuckDB makes and removes. Queries can read that folder, so it is
    # one of this connection's own.
    spill = f"{tempfile.gettempdir()}/{leftovers.scratch_prefix()}{secrets.token_hex(8)}"
    connection.execute("set temp_directory = ?", [spill])
    if memory is not None:
        connection.execute(f"set memory_limit = '{memory}B'")
    for name, value in _SETTINGS.items():
        connection.execute(f"set {name} = {value}")
    return connection

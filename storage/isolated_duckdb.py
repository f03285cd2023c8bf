"""DuckDB connections that read only the tables they are given. Separate: importing it imports DuckDB."""

import duckdb

# A query sees the tables that are registered, and nothing else: no files, network, Python variables or extensions.
# What a document cannot answer is missing: a division by zero, the logarithm of a negative number.
_SETTINGS = {
    "enable_external_access": False,
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "ieee_floating_point_ops": False,
    "error_on_division_by_zero": False,
    "TimeZone": "UTC",
}


def connect(threads: int = 1, memory_bytes: int | None = None) -> duckdb.DuckDBPyConnection:
    """A database in memory, in UTC, whose settings queries cannot change.

    `threads`: at most this many run a query; with one the rows of a table keep their order. `memory_bytes`: the most
    that a query may hold before it spills to the temporary folder; default: DuckDB's, 80% of the machine's.
    """
    connection = duckdb.connect(":memory:")
    connection.execute(f"set threads = {int(threads)}")
    if memory_bytes is not None:
        connection.execute(f"set memory_limit = '{int(memory_bytes)}B'")
    for name, value in _SETTINGS.items():
        connection.execute(f"set {name} = {value!r}".lower() if isinstance(value, bool) else f"set {name} = '{value}'")
    connection.execute("set lock_configuration = true")
    return connection

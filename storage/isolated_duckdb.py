"""DuckDB connections that read only the tables they are given. Separate: importing it imports DuckDB."""

import tempfile

import duckdb

# A query sees the tables that are registered, and nothing else: no files, network, Python variables or extensions.
# A division by zero, and a function outside of its domain under `try`, is null.
_SETTINGS = {
    "threads": "1",  # rows keep their order, and sums of floats their value
    "temp_directory": f"'{tempfile.gettempdir()}'",  # what exceeds memory is spilled; default: the current folder
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


def connect() -> duckdb.DuckDBPyConnection:
    """A database in memory, in UTC, on one thread, whose settings queries cannot change."""
    connection = duckdb.connect(":memory:")
    for name, value in _SETTINGS.items():
        connection.execute(f"set {name} = {value}")
    return connection

"""A run: processes, the loop, recovery, what is recorded."""

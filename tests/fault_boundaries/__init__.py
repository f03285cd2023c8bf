"""Every write of a run is tried with a kill, an error, a full disk and a power loss: `python -m tests.fault_boundaries`."""

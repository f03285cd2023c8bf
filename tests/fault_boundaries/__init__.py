"""Every write of a run is tried with a kill, an error, a full disk and a loss of power."""

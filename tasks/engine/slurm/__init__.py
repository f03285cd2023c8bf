"""A run on SLURM: its Dask scheduler in the run's own process, and workers that come and go as tasks of a job array."""

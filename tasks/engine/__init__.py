"""The stage engine: a stage is named by a digest of all that decides it, found if it is finished, else made job by job.

spec           what a stage is made of, and its key
code_version   the code that decides it
phases         what a stage's body works with: its jobs, phase by phase
jobs           one job, which can be done again at any time
options        how jobs run: memory, remote files; nothing of it reaches an output
executors      where jobs run: here, in threads, on Dask workers
make           find or make, the only one
verify         everything that a finished stage has, read again

It knows no orchestrator: flows give it an executor and something that shows progress.
"""

"""The stage engine: keys, find-or-make, jobs, executors. It knows no orchestrator."""

"""How a flow runs: Prefect, progress, kernels compiled ahead; its record in MLflow; services of this machine."""

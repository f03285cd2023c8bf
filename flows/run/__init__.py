"""How a flow runs: Prefect, progress, kernels compiled ahead."""

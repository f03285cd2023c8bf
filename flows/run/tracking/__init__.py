"""MLflow's records of runs and models."""

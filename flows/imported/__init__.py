"""A training that another program did on a recipe's tokens, as a run of the recipe's experiment in MLflow.

points.py    the losses that it wrote, as points of metrics
run.py       what is imported: its model, evaluated here on the recipe's held-out text; the run in MLflow
"""

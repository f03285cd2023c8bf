"""Scaling laws of your own runs: the loss as a function of parameters and tokens, and forecasts with their errors."""

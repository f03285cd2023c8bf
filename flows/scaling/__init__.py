"""Scaling laws of a user's own runs: the loss as a function of parameters and tokens, and forecasts with their errors.

Statistics alone: arrays and numbers in, numbers out. Imports numpy and scipy, and nothing of ours.
"""

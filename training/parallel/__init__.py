"""Processes of a run: how they divide a model, and what they do together."""

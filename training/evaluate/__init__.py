"""Losses on held-out documents, tasks, and samples of text."""

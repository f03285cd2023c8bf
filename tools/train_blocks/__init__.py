"""Trains the classifier of blocks of tasks.extraction.engines."""

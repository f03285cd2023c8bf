"""Trains the classifier of blocks that tasks.extraction.blocks uses."""

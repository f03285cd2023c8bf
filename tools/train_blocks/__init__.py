"""Trains the classifier of blocks of gristmill.tasks.extraction.classifier."""

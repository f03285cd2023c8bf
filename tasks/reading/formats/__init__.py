"""Formats of sources: a class each, with the settings of a source, and how its files are read and recognized."""

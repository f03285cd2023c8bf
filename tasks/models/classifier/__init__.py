"""Classifiers by fastText: files, training, measures."""

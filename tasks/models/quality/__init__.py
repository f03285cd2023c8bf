"""Classifiers of quality, and classes by several scores."""

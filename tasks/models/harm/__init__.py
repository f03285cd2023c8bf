"""Toxicity and adult content."""

"""Stages of deduplication, and the exchange between their phases."""

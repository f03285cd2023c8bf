"""Kernels that compare documents of deduplication: sets and sequences of words."""

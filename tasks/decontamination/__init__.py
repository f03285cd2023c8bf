"""Decontamination: which documents contain items of benchmarks, how much of each, and their removal."""

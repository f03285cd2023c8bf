"""Experiments: decisions between recipes, mixtures, scaling laws, plans of a training, and models on their own."""

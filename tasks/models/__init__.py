"""Learned models that score documents: how each is trained, loaded and asked."""

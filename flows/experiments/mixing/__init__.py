"""The weights of sources, found by small models."""

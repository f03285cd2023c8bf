"""Checkpoints: written whole, kept as told, found again."""

"""Recipes: their keys and steps, the files that they name, and their check before a run."""

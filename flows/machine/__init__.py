"""This machine: its settings, databases, the context of a run, and the recorded runs with their stages."""

"""This machine: its settings, databases, the context of a run, and which stages runs had."""

"""Documents on their way through steps: signals, edits, decisions, selections."""

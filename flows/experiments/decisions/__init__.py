"""Which of several recipes is better, by small models trained on each."""

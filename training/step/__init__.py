"""An update: optimizer, verdicts, the guard and what is measured."""

"""Statistics of decisions and scaling laws: functions over numbers, with known error rates. Needs numpy and scipy."""

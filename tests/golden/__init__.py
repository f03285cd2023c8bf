"""The golden guard: what every stage and every step makes of a nasty fixture, by digests, beside declared versions."""

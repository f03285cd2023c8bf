"""What users may rely on: the public surface, and a program over it that type checkers accept."""

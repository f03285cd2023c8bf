"""The stages of a run: what each reads, and which jobs its phases map."""

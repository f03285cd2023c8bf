"""The stages of a run, one file each: what it is made of, and which jobs its phases map."""

"""What depends on a thing of a home, and who read it: the report of `home affected`, retractions, erasure."""

"""What depends on a stage, a step, a file or a document: the graph of a home, and what was retracted in it."""

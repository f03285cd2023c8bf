"""What a user asks for: the recipe, its steps, what it names, and its check before a run."""

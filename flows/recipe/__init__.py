"""What a user asks for: the recipe, its steps, and what it names."""

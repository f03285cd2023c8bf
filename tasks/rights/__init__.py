"""Rights: what pages and sites state about the use of their content, and what a recipe makes of it."""

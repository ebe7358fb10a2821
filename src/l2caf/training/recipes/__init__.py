"""One file a recipe."""

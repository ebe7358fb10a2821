"""A network run once and cut: borrowed, watched, kept, and run again from the cut."""

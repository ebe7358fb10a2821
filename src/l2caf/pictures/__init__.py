"""From photographs to finished pictures: the room behind every door (the command line, the page, Python)."""

"""Feature maps that were kept: read from disk in blocks, and explained as plain arrays, without torch."""

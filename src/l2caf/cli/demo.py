def command() -> int:
    """Demo."""
    return 0

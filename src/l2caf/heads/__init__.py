"""What follows the cut, by the cheapest verified way."""

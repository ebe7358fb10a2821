"""Methods: from a network and inputs to a heatmap."""

"""Training: losses and miners come from pytorch-metric-learning, devices from Lightning Fabric; recipes/ puts them together."""

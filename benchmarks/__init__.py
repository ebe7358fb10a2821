"""Measurements of l2caf: what is promised, what was measured, losses beside wins. See README.md."""

"""Recurrent networks for clips: what is trained, and how."""

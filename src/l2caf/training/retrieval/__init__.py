"""Retrieval networks: what is trained, and how."""

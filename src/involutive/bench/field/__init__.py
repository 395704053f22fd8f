"""Targets of the literature as published, their published figures, and the metrics of those tables."""

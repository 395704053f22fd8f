"""Targets of the literature as published, published figures, and the metrics of those tables."""

"""Targets of the literature as published, published results, and the metrics of those tables."""

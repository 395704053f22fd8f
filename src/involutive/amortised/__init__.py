"""Families of posteriors: one network proposes for every data set, and each chain stays exact."""

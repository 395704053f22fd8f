"""Densities of the literature that one mixture does not fit, with what is known of each."""

"""Running chains, holding their draws, and judging them."""

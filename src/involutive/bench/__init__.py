"""The benchmark: this library and its peers, side by side, one run on one machine."""

from involutive.bench.compare import Bench, joined, run

__all__ = ["Bench", "joined", "run"]

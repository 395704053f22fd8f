"""The benchmark: this library and its peers, side by side, one run on one machine."""

from involutive.bench.run import Bench, run

__all__ = ["Bench", "run"]

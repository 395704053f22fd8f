"""The command. Worker processes do not import a `__main__.py` again, so that they start at once."""

import argparse

from involutive.bench import pools
from involutive.bench.pools.measure import ROWS, SECONDS, TURNS, inside_mpi, killed, run
from involutive.core.text import markdown_table


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=pools.__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="Calls per turn.")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="Seconds per call.")
    parser.add_argument("--turns", type=int, default=TURNS, help="Turns per pool.")
    parser.add_argument("--no-dask", action="store_true", help="Leave Dask out.")
    parser.add_argument("--no-mpi", action="store_true", help="Leave MPI out.")
    parser.add_argument("--inside-mpi", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    sizes, dask = (asked.rows, asked.seconds), not asked.no_dask
    if asked.inside_mpi:
        print(inside_mpi(*sizes, asked.turns))  # noqa: T201
        return
    print(markdown_table(run(*sizes, asked.turns, dask, not asked.no_mpi)))  # noqa: T201
    print(markdown_table(killed(*sizes, dask)))  # noqa: T201


if __name__ == "__main__":
    main()

"""`python -m involutive.bench`: the benchmark without the command line's comforts."""

import argparse
import sys

from involutive.bench.compare import run


def main() -> None:
    """Parse, call, print."""
    parser = argparse.ArgumentParser(prog="python -m involutive.bench")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", default="results/bench")
    parser.add_argument("--targets", nargs="*")
    parser.add_argument("--peers", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float)
    args = parser.parse_args()
    say = lambda line: sys.stdout.write(line + "\n") and sys.stdout.flush()  # noqa: E731
    result = run(args.quick, args.out, args.targets, args.peers, args.seed, say, args.seconds)
    say(result.markdown)


if __name__ == "__main__":
    main()

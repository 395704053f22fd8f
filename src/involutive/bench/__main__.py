"""`python -m involutive.bench`: the benchmark without the command line's comforts."""

import argparse
import sys

from involutive.bench.compare import joined, run


def main() -> None:
    """Parse, call, print."""
    parser = argparse.ArgumentParser(prog="python -m involutive.bench")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", default="results/bench")
    parser.add_argument("--suite", default="default")
    parser.add_argument("--targets", nargs="*")
    parser.add_argument("--peers", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--data", "--posteriordb", dest="data")
    parser.add_argument("--merge", nargs="+")
    args = parser.parse_args()
    say = lambda line: sys.stdout.write(line + "\n") and sys.stdout.flush()  # noqa: E731
    if args.merge:
        result = joined(args.merge, args.out)
    else:
        result = run(
            args.quick, args.out, args.targets, args.peers, args.seed, say, args.seconds,
            args.suite, args.seeds, args.data,
        )  # fmt: skip
    say(result.markdown)


if __name__ == "__main__":
    main()

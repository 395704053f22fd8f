"""The command `involutive`: what starts it and how it ends.

Exit codes: 0 done; 2 for what the user can fix, with one line that says what; 130 after Ctrl-C.
"""

import sys

from involutive.cli.interrupts import INTERRUPTED, patience


def main(argv: list[str] | None = None) -> None:
    """Run the command and exit; a user's mistake is one line and exit code 2."""
    patience.begin()
    try:
        code = run(argv)
        if code == INTERRUPTED:
            patience.leave()
    finally:
        patience.end(leaving=argv is None)
    sys.exit(code)


def run(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    from involutive.cli.commands import app
    from involutive.cli.exits import guarded

    return guarded(lambda: app(args=argv, prog_name="involutive", standalone_mode=False))


if __name__ == "__main__":
    main()

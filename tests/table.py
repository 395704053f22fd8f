"""The reliability table: what `make test-deep` promises, and how figures of a row are joined."""

from collections.abc import Iterable
from typing import Any

TARGETS = {
    1: "stationary: 10^6 exact starts, 5 steps, 8 targets, 3 kinds of weights: p > 1e-4, gap 0.006",
    2: "planted bugs: at least 12, all caught",
    3: "Gandy-Scott ranks: 10^4, L = 20, 3 rounds: false rejection 1e-4",
    4: "SBC through learn, save, load, sample: at least 100 data sets, p > 1e-4",
    6: "two equal modes from one of them: weight 0.50 +- 0.01",
    7: "round trip: 10^5 points to 10 sd, 1e-9 or rejected; lattice 10^7 of 10^7 bit for bit",
    8: "log-determinant against autodiff, d <= 8, 10^3 points: 1e-9",
    9: "matrix block, 10^5 parameters: cosine at least 0.1",
    10: "density NaN or infinite on 1% and 50%: 0 such draws, truncated distribution, counted",
    11: "SIGKILL 100 times: the same SHA-256",
    12: "1000 truncations and 1000 bit flips each: 0 wrong resumes",
    13: "disk full 20 times: old checkpoint intact, exit 2, one line",
    14: "hostile files: 0 code run, < 200 MB, < 2 s",
    15: "chain k beside 1, 4, 64, 1000: the same bits",
    16: "at least 40 bad inputs: named before step 1; command: exit 2, no traceback",
    17: "SIGINT 50 times: an exact prefix",
    18: "keys used twice, chains alike: 0",
    19: "proposal hash before and after: equal; moves > 0",
    20: "50 fresh seeds: 0 flakes",
    21: "SIGINT 50 times in learn, cold and warm cache: exit 130 within 2 s, the rest resumes",
    22: "20 budgets, 10 to 10^6 evaluations, 2 to 120 s: one batch; 20% or 2 s past a compilation",
    23: "something is easily missed, 8 kinds: wrong and trusted 0, the right share beside it",
}


def joined(figures: Iterable[tuple[str, Any]]) -> str:
    """One text for the figures of all tests of a row: least, most, or the sum."""
    found: dict[str, Any] = {}
    for name, value in figures:
        if name not in found:
            found[name] = value
        elif name.startswith("least "):
            found[name] = min(found[name], value)
        elif name.startswith("most "):
            found[name] = max(found[name], value)
        else:
            found[name] = found[name] + value
    return ", ".join(f"{name} {_short(value)}" for name, value in found.items())


def lines(reports: Iterable[Any]) -> list[str]:
    """The table of the tests that were run, from their reports; a row is ok if all of it passed."""
    figures: dict[int, list[tuple[str, Any]]] = {}
    outcomes: dict[int, list[str]] = {}
    for report in reports:
        properties = list(report.user_properties)
        for number in {value for name, value in properties if name == "row"}:
            outcomes.setdefault(number, []).append(report.outcome)
        for name, value in properties:
            if name == "figure":
                number, key, number_seen = value
                figures.setdefault(number, []).append((key, number_seen))
    rows = []
    for number, target in TARGETS.items():
        seen = outcomes.get(number, [])
        failed, skipped = seen.count("failed"), seen.count("skipped")
        ok = "not run" if not seen else f"NO: {failed} of {len(seen)}" if failed else "yes"
        ok += f", {skipped} skipped" if skipped else ""
        rows.append(f"{number:>3} | {target} | {joined(figures.get(number, []))} | {ok}")
    return ["row | target | seen | ok", *rows]


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)

"""The leaderboard: `python -m involutive.bench.leaderboard RUN ... --docs PAGE --readme README`.

One cell per target and sampler: seconds, or evaluations, to 10⁴ effective draws with everything
that comes before the first draw. Its colour is the verdict: a wrong sampler has no number. Every
cell links to its row, which says what was measured.
"""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from involutive.bench import record
from involutive.bench.field.table import table as published
from involutive.bench.peers import GRADIENT_FREE
from involutive.bench.report import right
from involutive.bench.report import verdict as in_words
from involutive.bench.suites import entry
from involutive.core.errors import check

Row = dict[str, Any]
Run = tuple[dict[str, Any], list[Row]]
GOAL = "10000"
OURS = "involutive"
STARVED = 0.7  # CPU seconds per second below which seconds are not compared; a guess
BEGIN, END = "<!-- leaderboard:start -->", "<!-- leaderboard:end -->"
COLOURS = {"correct": "#d9f0d3", "unclear": "#fff3bf", "wrong": "#f4c7c3", "none": "#eeeeee"}
CONTESTS = (
    ("seconds", None, "all samplers"),
    ("evaluations", GRADIENT_FREE, "this library and gradient-free samplers"),
)
FIGURES = {
    "seconds": "Seconds to 10,000 effective draws",
    "evaluations": "Density evaluations to 10,000 effective draws (a gradient counts as three)",
}


def state(rows: Sequence[Row]) -> str:
    """The worst verdict of a cell's seeds: none, wrong, unclear or correct."""
    if not rows or any(row.get("failed") for row in rows):
        return "none"
    if any(row["wrong"] for row in rows):
        return "wrong"
    return "unclear" if any(row.get("unclear") for row in rows) else "correct"


def number(rows: Sequence[Row], figure: str) -> float | None:
    """The median over seeds of a cell's metric, where every seed is correct.

    Seconds of a process that had less than `STARVED` cores are those of a busy machine, not of the
    sampler, and do not count.
    """
    if state(rows) != "correct" or (figure == "seconds" and starved(rows)):
        return None
    found = [row[f"{figure}_to"][GOAL] for row in rows]
    return None if None in found else float(np.median(found))


def starved(rows: Sequence[Row]) -> bool:
    """Whether another program kept a sampler from running."""
    return any(row.get("cores_had", 1.0) < STARVED for row in rows)


def cell(rows: Sequence[Row], target: str, peer: str) -> list[Row]:
    """The rows of a cell, one per seed."""
    return [row for row in rows if (row["target"], row["peer"]) == (target, peer)]


def grid(run: Run, figure: str) -> str:
    """An HTML table of targets and samplers, coloured by verdict."""
    header, rows = run
    peers = [peer for peer in header["peers"] if any(row["peer"] == peer for row in rows)]
    lines = [f"<table><caption>{FIGURES[figure]}</caption>", "<tr><th>target</th>"]
    lines += [f"<th>{html.escape(peer)}</th>" for peer in peers] + ["</tr>"]
    for target in header["targets"]:
        if not any(row["target"] == target for row in rows):
            continue
        numbers = {peer: number(cell(rows, target, peer), figure) for peer in peers}
        fastest = min((v for v in numbers.values() if v is not None), default=None)
        lines.append(f"<tr><th>{target}</th>")
        for peer in peers:
            found = cell(rows, target, peer)
            lines.append(_box(found, _anchor(header, target, peer), numbers[peer], fastest))
        lines.append("</tr>")
    return "\n".join([*lines, "</table>"])


def _box(rows: list[Row], anchor: str, value: float | None, fastest: float | None) -> str:
    verdict = state(rows)
    words = {"correct": "no count", "unclear": "unclear", "wrong": "wrong", "none": "no result"}
    text = words[verdict] if value is None else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
    if value is None and verdict == "correct" and starved(rows):
        text = "busy machine"
    text = "not run" if not rows else text
    if value is not None and value == fastest:
        text = f"<b>{text}</b>"
    link = f'<a href="#{anchor}">{text}</a>' if rows else text
    return f'<td style="background:{COLOURS[verdict]};color:#000">{link}</td>'


def _anchor(header: dict[str, Any], target: str, peer: str) -> str:
    return (
        f"{header['suite']}-{header['seconds']:g}-{target}-{peer}".replace("_", "-")
        .replace(":", "-")
        .lower()
    )


def details(run: Run) -> str:
    """An HTML table of every row, to which the cells link."""
    header, rows = run
    columns = ("target", "sampler", "seed", "verdict", "ESS/draw", "setup s", "sampling s",
               "evaluations", "CPU s", "cores had")  # fmt: skip
    lines = ["<table><tr>", *(f"<th>{name}</th>" for name in columns), "</tr>"]
    seen: set[str] = set()
    for row in rows:
        anchor = _anchor(header, row["target"], row["peer"])
        mark = "" if anchor in seen else f' id="{anchor}"'
        seen.add(anchor)
        shown = [row["target"], row["peer"], str(row.get("seed", 0)), in_words(row)]
        if not row.get("failed"):
            cost = row["evaluations"]
            share = f"{row['ess_per_draw']:.3f}" if right(row) else ""
            shown += [share, f"{row['setup_seconds']:.1f}", f"{row['sampling_seconds']:.1f}",
                      "" if cost is None else f"{cost:,.0f}"]  # fmt: skip
            if "cores_had" in row:
                cores, wall = row["cores_had"], row["wall_seconds"]
                shown += [f"{cores * wall:.0f}", f"{cores:.2f}"]
        cells = "".join(f"<td>{html.escape(each)}</td>" for each in shown)
        lines.append(f"<tr{mark}>{cells}</tr>")
    return "\n".join([*lines, "</table>"])


def standing(run: Run, figure: str, among: Sequence[str] | None = None) -> tuple[int, int]:
    """On how many multimodal targets this library is first among correct samplers, of how many.

    Targets on which fewer than two samplers ran do not count.
    """
    header, rows = run
    first = total = 0
    for target in header["targets"]:
        peers = {row["peer"] for row in rows if row["target"] == target}
        if among is not None:
            peers &= {OURS, *among}
        if not entry_is_multimodal(target) or OURS not in peers or len(peers) < 2:
            continue
        numbers = {peer: number(cell(rows, target, peer), figure) for peer in peers}
        found = {peer: value for peer, value in numbers.items() if value is not None}
        if figure == "seconds" and any(starved(cell(rows, target, peer)) for peer in peers):
            continue
        total += 1
        first += bool(found) and min(found, key=lambda peer: found[peer]) == OURS
    return first, total


def entry_is_multimodal(target: str) -> bool:
    """Whether a target of a suite has separated modes."""
    return entry(target).multimodal


def page(runs: Sequence[Run]) -> str:
    """The page of the documentation."""
    lines = [
        "# Leaderboard", "",
        "Each cell is one target and one sampler. Its number is the cost of 10,000 effective "
        "draws, with compilation, warm-up and learning; the lowest number of a row is bold. The "
        "colour is the verdict: green is correct, yellow is unclear, red is wrong, and grey means "
        'no result within the limit. "Busy machine" means that the process had less than 0.7 of a '
        "core, so its seconds are not shown. Each cell links to its row below. The [benchmark "
        "page](benchmarks.md) explains how samplers are judged.", "",
        "`python -m involutive.bench.leaderboard RUN ... --docs PAGE` writes this page.", "",
    ]  # fmt: skip
    for place, run in enumerate(runs):
        lines += _section(run, every=place == 0)
    return "\n".join(lines)


def _section(run: Run, every: bool) -> list[str]:
    """The part of the page that one run fills."""
    header, rows = run
    limit = f"{header['seconds']:g} s per run"
    lines = [f"## Suite {header['suite']}, {limit}", "", words(run), ""]
    lines += [part for figure in FIGURES for part in (grid(run, figure), "")]
    if header["suite"] == "field":
        table = published(header, rows, every)
        lines += [f"### Beside published results, {limit}", "", *table, ""]
    for figure, among, of in CONTESTS:
        first, total = standing(run, figure, among)
        if total:
            lines.append(
                f"First in {figure} on {first} of {total} multimodal targets, among {of} that "
                "ran and were correct.\n"
            )
    if header["left_out"]:
        out = "; ".join(f"{name} {reason}" for name, reason in header["left_out"].items())
        lines += [f"Left out: {out}.", ""]
    return [*lines, f"### Rows of suite {header['suite']}, {limit}", "", details(run), ""]


def words(run: Run) -> str:
    """In a sentence where and when a run was made, and how busy the machine was."""
    header, rows = run
    loads = [row["load_before"] for row in rows if "load_before" in row]
    busy = f" under a mean load of {np.mean(loads):.0f} programs" if loads else ""
    return (
        f"`involutive bench --suite {header['suite']} --seconds {header['seconds']:g}`, seeds "
        f"{', '.join(map(str, header['seeds']))}, {header['cores']} cores{busy}, begun "
        f"{header['began']} UTC"
        + ("; QUICK sizes, not for comparison." if header["quick"] else ".")
    )


def readme_table(runs: Sequence[Run]) -> str:
    """Markdown: this library and the best correct peer, of every target that two samplers ran."""
    lines = [
        "Seconds to 10,000 effective draws, with compilation, warm-up and learning.",
        *(words(run) for run in runs),
        "",
        "| target | involutive | best correct peer | samplers that were wrong or unclear |",
        "|---|---|---|---|",
    ]
    for header, rows in runs:
        for target in header["targets"]:
            found = {row["peer"] for row in rows if row["target"] == target}
            if OURS not in found or len(found) < 2:
                continue
            ours = number(cell(rows, target, OURS), "seconds")
            peers = {p: number(cell(rows, target, p), "seconds") for p in found - {OURS}}
            correct = {p: value for p, value in peers.items() if value is not None}
            best = min(correct, key=lambda p: correct[p]) if correct else ""
            bad = [p for p in header["peers"] if p in peers
                   and state(cell(rows, target, p)) in ("wrong", "unclear")]  # fmt: skip
            lines.append(
                f"| {target} | {_seconds(ours, state(cell(rows, target, OURS)))} | "
                + (f"{best}, {correct[best]:.3g} s" if best else "none")
                + f" | {', '.join(bad) or '–'} |"
            )
    return "\n".join(lines)


def _seconds(value: float | None, verdict: str) -> str:
    if value is None:
        return "no result" if verdict == "none" else verdict
    return f"{value:.3g} s"


def between_markers(text: str, table: str) -> str:
    """The text with what stands between the markers replaced."""
    check(
        BEGIN in text and END in text and text.index(BEGIN) < text.index(END),
        f"the file must have the lines {BEGIN} and {END}, in this order",
    )
    head, rest = text.split(BEGIN, 1)
    return f"{head}{BEGIN}\n{table}\n{END}{rest.split(END, 1)[1]}"


def main(
    paths: Annotated[list[Path], typer.Argument(help="bench.json files, or their folders.")],
    docs: Annotated[Path | None, typer.Option(help="Write the page here.")] = None,
    readme: Annotated[Path | None, typer.Option(help="Replace the table in this file.")] = None,
) -> None:
    """Write the leaderboard page, and the README's table between its markers."""
    runs = [record.read(path) for path in paths]
    if docs is not None:
        docs.write_text(page(runs), encoding="utf-8")
    if readme is not None:
        text = readme.read_text(encoding="utf-8")
        readme.write_text(between_markers(text, readme_table(runs)), encoding="utf-8")
    if docs is None and readme is None:
        typer.echo(readme_table(runs))


if __name__ == "__main__":
    typer.run(main)

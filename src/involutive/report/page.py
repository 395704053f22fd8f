"""The page: verdict first, then the table, then the figures, then how to repeat the run."""

from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path

import numpy as np

from involutive.core.errors import InputError, check
from involutive.core.files import REPORT_ENDINGS, check_ending, replacing
from involutive.core.statistics import ess
from involutive.core.types import Number
from involutive.diagnostics.assess import Assessment
from involutive.diagnostics.measured import Evidence
from involutive.diagnostics.modes import line_of
from involutive.diagnostics.summary import Summary
from involutive.kernel.kernel import AbstractKernel
from involutive.report import figures, sections
from involutive.report.moves import with_kernel
from involutive.report.repeat import repeat_html
from involutive.report.sections import Section, drawing
from involutive.sampling.draws import Draws
from involutive.sampling.quantities import quantities
from involutive.storage.format import PathLike

SHOWN = 6  # quantities in a figure; of more, those with the fewest effective draws
PAIRED = 4  # quantities in the figures with a panel per pair, per chain, or per line
UNSEEN = (
    "No diagnostic can tell whether there is a mode that no chain has ever visited. If you suspect "
    "one, start chains there, or learn again with an initial distribution that covers it."
)
BOUND = (
    "What it says: after b steps from X, the distribution of a chain is at most this far from "
    "the posterior, in symmetric KL divergence. What it does not say: that these draws are right. "
    "It is judged against posterior draws; if those miss a mode, so does the bound. A loose bound "
    "may mean too few chains M rather than a slow kernel."
)


def write_report(
    draws: Draws,
    path: PathLike,
    kernel: AbstractKernel | None = None,
    assessment: Assessment | None = None,
    evidence: Evidence | None = None,
    truths: Mapping[str, Number] | None = None,
) -> Path:
    """Write the report of `draws`; see `Draws.report`."""
    check(isinstance(draws, Draws), f"a report is of Draws, got {type(draws).__name__}")
    path = Path(path)
    check_ending("path of a report", path, REPORT_ENDINGS)
    check(
        path.parent.is_dir(),
        f"the report's folder must exist, got {path.parent}; make it or choose another",
    )
    found = type(evidence).__name__
    check(
        evidence is None or isinstance(evidence, Evidence),
        f"evidence must come from inv.evidence, got {found}",
    )
    shown = draws if kernel is None else with_kernel(draws, kernel)
    text = Page(shown, assessment, evidence, truths).html()
    try:
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"the report must be a file that can be written, got {path} ({error.strerror})"
        ) from error
    return path


class Page:
    """One report."""

    def __init__(
        self,
        draws: Draws,
        assessment: Assessment | None = None,
        evidence: Evidence | None = None,
        truths: Mapping[str, Number] | None = None,
    ):
        self.draws, self.assessment, self.evidence = draws, assessment, evidence
        self.truths = truths or {}
        self.modes = None if line_of(draws) is None else draws.modes(evidence)
        self.summary: Summary = draws.summary()
        self.metrics = self.summary.metrics
        found = draws.derived or quantities(draws.target, draws.positions)
        self.scalars = found.unwrapped()
        self.rows = self.scalars | found.coordinates() | found.shape()

    def html(self) -> str:
        """The whole file."""
        sections = [section for section in self._sections() if section is not None]
        links = "".join(f'<li><a href="#{s.anchor}">{s.title}</a></li>' for s in sections)
        body = "".join(
            f'<section id="{s.anchor}" aria-labelledby="{s.anchor}-title">'
            f'<h2 id="{s.anchor}-title">{s.title}</h2>{s.body}</section>'
            for s in sections
        )
        name = escape(self.draws.target.name)
        style = files("involutive.report").joinpath("style.css").read_text(encoding="utf-8")
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<link rel="icon" href="data:,">'
            f"<title>Sampling report: {name}</title><style>{style}</style></head><body>"
            '<a class="skip" href="#main">Skip to the verdict</a>'
            f"<header><h1>Sampling report: {name}</h1>"
            f"<p class='note'>Markov chain Monte Carlo: {self._size()}.</p></header>"
            f'<main id="main" tabindex="-1">{self._verdict()}'
            f'<nav aria-label="Sections"><ul>{links}</ul></nav>{body}</main>'
            f"<footer><p>Made by involutive {escape(self._version())}. This file needs no network."
            "</p></footer></body></html>\n"
        )

    def _size(self) -> str:
        chains, count, dim = self.draws.positions.shape
        return f"{chains} chains of {count:,} draws, {dim} coordinates"

    def _version(self) -> str:
        return str(self.draws.provenance.get("version", ""))

    def _verdict(self) -> str:
        good = self.summary.trustworthy
        head = (
            "These draws can be trusted, as far as the chains can tell."
            if good
            else "Do not trust these draws yet."
        )
        items = "".join(
            f"<li>{escape(f.problem)} <em>Try:</em> {escape(f.remedy)}</li>"
            for f in self.summary.findings
        )
        notes = [self.summary.verdict, self.summary.movement[0].upper() + self.summary.movement[1:]]
        notes = [note.rstrip(".") + "." for note in notes]
        return (
            f'<div class="verdict {"good" if good else "bad"}" role="region" aria-label="Verdict" '
            f'id="verdict"><p><strong>{head}</strong></p><p>{escape(notes[0])}</p>'
            f"<ul>{items}</ul><p>{escape(notes[1])}</p><p class='note'>{UNSEEN}</p></div>"
        )

    def _sections(self) -> list[Section | None]:
        enough = self.draws.num_samples >= 4
        return [
            Section("table", "Summary", self._table()),
            self._modes(),
            self._mode_weights(),
            self._evidence(),
            self._densities(),
            self._pairs() if len(self.scalars) > 1 else None,
            self._ranks() if enough else None,
            self._traces() if enough else None,
            self._autocorrelation() if enough else None,
            self._acceptance(),
            self._moves(),
            self._learning(),
            self._assessment(),
            Section("provenance", "Repeat this run", repeat_html(self.draws.provenance)),
        ]

    # ── Sections ────────────────────────────────────────────────────────────────────────────────

    def _table(self) -> str:
        shown = self.summary._shown()
        names = {"ess_bulk": "ESS bulk", "ess_tail": "ESS tail", "r_hat": "R-hat", "mcse": "MCSE"}
        names |= {"nested_r_hat": "nested R-hat"}
        head = "".join(
            f'<th scope="col">{escape(str(names.get(c, c)))}</th>' for c in shown.columns
        )
        rows = "".join(
            f'<tr><th scope="row">{escape(str(name))}</th>'
            + "".join(f"<td>{escape(str(v))}</td>" for v in row)
            + "</tr>"
            for name, row in zip(shown.index, shown.to_numpy(), strict=True)
        )
        left = len(self.summary.table) - len(shown)
        more = (
            f"<p class='note'>{left} more quantities, with more effective draws, are not shown.</p>"
            if left
            else ""
        )
        return (
            '<div class="wide" tabindex="0" role="region" aria-label="Summary table">'
            f'<table><thead><tr><th scope="col">quantity</th>{head}</tr></thead>'
            f"<tbody>{rows}</tbody></table></div>{more}"
            "<p class='note'>5% and 95% are the ends of a 90% interval; MCSE is the Monte Carlo "
            "error of the mean; ESS is rank-normalised; R-hat near 1 means that chains agree.</p>"
        )

    def _modes(self) -> Section | None:
        return None if self.modes is None else sections.modes_section(self.modes)

    def _evidence(self) -> Section | None:
        return None if self.evidence is None else sections.evidence_section(self.evidence)

    def _mode_weights(self) -> Section | None:
        share, exact = self.metrics.share, self.metrics.exact
        if share is None or exact is None:
            return None
        text = f"{self.summary._modes()[-1]}."
        figure = figures.mode_bars(share, exact)
        body = drawing(figure, "weights", f"Bars: {text}", text.capitalize())
        return Section("weights", "Mode weights", body)

    def _densities(self) -> Section:
        shown = self._worst(self.scalars, SHOWN)
        caption = "All draws (shaded) and four groups of chains (lines), which should agree."
        alt = f"Histograms of {', '.join(shown)}"
        return Section(
            "density",
            "Densities",
            drawing(figures.densities(shown, self._labels()), "density", alt, caption),
        )

    def _pairs(self) -> Section:
        shown = self._worst(self.scalars, PAIRED)
        labels = self._labels()
        caption = "The contours hold 50 % and 90 % of the draws" + (
            "." if labels is None else "; each colour is one mode."
        )
        if self.truths:
            caption += " Dashed lines are the true values."
        alt = f"Joint distributions of {', '.join(shown)}, each alone on the diagonal"
        drawn = figures.pairs(shown, labels, self.truths)
        return Section("pairs", "Pairs", drawing(drawn, "pairs", alt, caption))

    def _labels(self) -> np.ndarray | None:
        """The mode of every draw, where there are several."""
        return self.modes.labels if self.modes is not None and len(self.modes) > 1 else None

    def _ranks(self) -> Section:
        caption = (
            "One line per chain: the share of its draws below a rank, minus that of all chains. "
            "Chains inside the dashed band agree; a chain far outside is in another region."
        )
        drawn = figures.ranks(self._worst(self.scalars, PAIRED))
        return Section("ranks", "Ranks", drawing(drawn, "ranks", "Rank plots of chains", caption))

    def _traces(self) -> Section:
        drawn = figures.traces(self._worst(self.scalars, PAIRED))
        caption = (
            "One chain per panel. A chain that mixes looks like noise, a stuck one like a line."
        )
        return Section(
            "traces", "Traces", drawing(drawn, "traces", "Traces of four chains", caption)
        )

    def _autocorrelation(self) -> Section:
        drawn = figures.autocorrelations(self._worst(self.rows, SHOWN))
        caption = "Correlation of draws by their lag. Independent draws have zero from lag 1 on."
        body = drawing(drawn, "lags", "Autocorrelation against lag", caption)
        return Section("lags", "Autocorrelation", body)

    def _acceptance(self) -> Section:
        slowest = self.metrics.slowest
        values = self.rows.get(slowest, self.draws.log_density)
        sizes = np.array([ess(chain[None]).item() for chain in values]) / self.draws.num_samples
        drawn = figures.acceptance(
            self.draws.acceptance_rate.mean(axis=1), np.nan_to_num(sizes), slowest
        )
        caption = (
            "Acceptance says how often a chain moved, not how far: read it beside the effective "
            "draws per draw of each chain alone."
        )
        alt = "Acceptance of each chain beside its effective draws per draw"
        return Section("acceptance", "Acceptance", drawing(drawn, "acceptance", alt, caption))

    def _moves(self) -> Section | None:
        found = self.draws.provenance.get("moves")
        if not found or not found["start"]:
            return None
        caption = (
            f"Some draws φ and where the proposal ({found['what']}) sends them, φ'. Faint arrows "
            "are likely to be rejected. Chains mix by long arrows between regions of high density."
        )
        body = drawing(figures.arrows(found), "moves", "Arrows from draws to proposals", caption)
        return Section("moves", "What the proposal does", body)

    def _learning(self) -> Section | None:
        found = self.draws.provenance.get("learning")
        if not found:
            return None
        text = f"<p>{escape(found['sentence'][0].upper() + found['sentence'][1:])}.</p>"
        drawn = figures.learning_curves(found.get("history", []))
        if drawn is None:
            return Section("learning", "Learning", text)
        caption = "The parameters were fixed before the first draw was kept."
        figure = drawing(drawn, "learning", "Held-out loss against training steps", caption)
        return Section("learning", "Learning", text + figure)

    def _assessment(self) -> Section | None:
        if self.assessment is None:
            return None
        *lines, setting = (escape(line) for line in str(self.assessment).splitlines())
        items = "".join(f"<li>{line[0].upper()}{line[1:]}.</li>" for line in lines)
        caption = "An upper bound in expectation; the bars are its 95% Monte Carlo interval."
        drawn = figures.bound_curve(self.assessment.curve)
        alt = "Bound on the distance to the posterior against steps"
        body = f"<ul>{items}</ul>{drawing(drawn, 'bound', alt, caption)}"
        body += f"<p>{setting[0].upper()}{setting[1:]}.</p><p class='note'>{BOUND}</p>"
        return Section("bound", "How far after b steps", body)

    def _worst(self, rows: dict[str, np.ndarray], count: int) -> dict[str, np.ndarray]:
        """The quantities with the fewest effective draws, in their own order."""
        sizes = self.metrics.figures["ess_bulk"]
        finite = [name for name in rows if np.isfinite(rows[name]).all()]
        worst = sorted(finite, key=lambda name: np.nan_to_num(sizes.get(name, np.inf)))[:count]
        return {name: rows[name] for name in finite if name in worst}

"""Draw the method page and the paper's diagrams: `python docs/drawings.py` writes images/*.svg."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from flowjax.bijections import AbstractBijection
from matplotlib.figure import Figure

import involutive as inv

IMAGES = Path(__file__).parent / "images"
INK, ACCENT, SECOND = "#333333", "#2a78c8", "#c8502a"


class Wave(AbstractBijection):
    """x ↦ 1.3 x + 0.5 sin(2x), increasing, inverted by Newton's steps."""

    shape: tuple = eqx.field(static=True, default=(1,))
    cond_shape: None = eqx.field(static=True, default=None)

    def transform_and_log_det(self, x, condition=None):
        slope = 1.3 + 1.0 * jnp.cos(2 * x)
        return 1.3 * x + 0.5 * jnp.sin(2 * x), jnp.sum(jnp.log(slope))

    def inverse_and_log_det(self, y, condition=None):
        def halve(_, ends):
            low, high = ends
            middle = 0.5 * (low + high)
            below = self.transform_and_log_det(middle)[0] < y
            return jnp.where(below, middle, low), jnp.where(below, high, middle)

        x = jax.lax.fori_loop(0, 60, halve, (y - 4.0, y + 4.0))[0]
        return x, -self.transform_and_log_det(x)[1]


def involution() -> Figure:
    """Points in pairs, and the curve of points that f leaves alone."""
    f = inv.FunctionBlock(Wave())
    figure = Figure(figsize=(4.6, 4.2), layout="constrained")
    axis = figure.subplots()
    z = np.random.default_rng(4).uniform(-2, 2, (11, 2))
    moved = np.array([f(jnp.asarray(point))[0] for point in z])
    for a, b in zip(z, moved, strict=True):
        axis.annotate("", b, a, arrowprops={"arrowstyle": "<->", "color": INK, "lw": 0.9})
    axis.plot(*z.T, "o", color=ACCENT, label="z")
    axis.plot(*moved.T, "s", color=SECOND, label="f(z)")
    line = np.linspace(-2, 2, 200)
    axis.plot(line, 1.3 * line + 0.5 * np.sin(2 * line), "--", color="#888888", label="f(z) = z")
    axis.set(xlabel="φ", ylabel="π", xlim=(-2.7, 2.7), ylim=(-3.2, 3.2))
    axis.legend(frameon=False, loc="upper left")
    return figure


def step() -> Figure:
    """One step: draw π, apply f, drop π', accept or stay."""
    f = inv.FunctionBlock(Wave())
    figure = Figure(figsize=(7.2, 3.8), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[2.4, 1])
    phi, pi = -1.1, 1.75
    new, back = np.asarray(f(jnp.array([phi, pi]))[0])
    for text, start, end, colour in (
        ("1  draw π", (phi, -2.6), (phi, pi), ACCENT),
        ("2  apply f", (phi, pi), (new, back), INK),
        ("3  drop π'", (new, back), (new, -2.6), SECOND),
    ):
        top.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": colour, "lw": 1.8})
        middle = 0.5 * (np.array(start) + np.array(end))
        top.text(middle[0] + 0.08, middle[1] + 0.1, text, color=colour, fontsize=10)
    top.plot([phi], [pi], "o", color=ACCENT)
    top.plot([new], [back], "s", color=SECOND)
    top.set(ylabel="π", ylim=(-2.6, 2.6), xlim=(-2.7, 2.7))
    x = np.linspace(-2.7, 2.7, 300)
    density = np.exp(-0.5 * ((x + 1.2) / 0.4) ** 2) + 0.8 * np.exp(-0.5 * ((x - 1.3) / 0.4) ** 2)
    bottom.fill_between(x, density, color="#999999", alpha=0.4)
    bottom.plot([phi], [0.0], "o", color=ACCENT, clip_on=False)
    bottom.plot([new], [0.0], "s", color=SECOND, clip_on=False)
    bottom.text(-0.95, 0.5, "4  accept with min(1, ratio), else stay", fontsize=10, color=INK)
    bottom.set(xlabel="φ", ylabel="p(φ)", yticks=[], ylim=(0, 1.1))
    return figure


def _box(axis, x: float, y: float, text: str, width: float = 0.9, height: float = 0.6) -> None:
    """A box around a text, centred at (x, y)."""
    from matplotlib.patches import FancyBboxPatch

    corner = (x - width / 2, y - height / 2)
    axis.add_patch(
        FancyBboxPatch(corner, width, height, boxstyle="round,pad=0.02", fc="#eef3fa", ec=INK)
    )
    axis.text(x, y, text, ha="center", va="center", fontsize=11, color=INK)


def _wire(axis, *points: tuple[float, float], colour: str = INK) -> None:
    """An arrow along points."""
    x, y = zip(*points, strict=True)
    axis.plot(x[:-1], y[:-1], color=colour, lw=1.3, solid_capstyle="round")
    arrow = {"arrowstyle": "->", "color": colour, "lw": 1.3, "shrinkA": 0, "shrinkB": 0}
    axis.annotate("", points[-1], points[-2], arrowprops=arrow)


def _crossed(axis, left: float, right: float) -> None:
    """The two halves change places between two columns of boxes."""
    _wire(axis, (left, 1.0), (right, 0.0), colour=ACCENT)
    _wire(axis, (left, 0.0), (right, 1.0), colour=SECOND)


def composed_blocks() -> Figure:
    """Two function blocks one after the other are the identity (the paper's first diagram)."""
    figure = Figure(figsize=(7.6, 2.4), layout="constrained")
    axis = figure.subplots()
    for x in (1.6, 4.2):
        _box(axis, x, 1.0, "$g$")
        _box(axis, x, 0.0, "$g^{-1}$")
    for y, name in ((1.0, "$x_{1..n}$"), (0.0, "$x_{n+1..2n}$")):
        axis.text(-0.15, y, name, ha="right", va="center", fontsize=11)
        axis.text(6.15, y, name, ha="left", va="center", fontsize=11)
        _wire(axis, (0.0, y), (1.13, y))
    _crossed(axis, 2.07, 3.73)
    _crossed(axis, 4.67, 6.05)
    axis.set(xlim=(-1.4, 7.4), ylim=(-0.6, 1.6))
    axis.set_axis_off()
    return figure


def decisions() -> Figure:
    """The stages of learning from left to right, and what ends it early."""
    figure = Figure(figsize=(10.4, 3.6), layout="constrained")
    axis = figure.subplots()
    stages = (
        "find modes\nclimb and anneal\nfrom X",
        "fit a mixture\nby importance\nweights",
        "try structure\nproduct, hierarchy,\nsymmetry, heavy tails",
        "refine\nladder of replicas,\nthen rounds",
        "compose\nwith a local move,\nreplicas again",
    )
    for i, text in enumerate(stages):
        _box(axis, 2.4 * i, 1.5, text, 1.96, 0.9)
        if i:
            _wire(axis, (2.4 * i - 1.4, 1.5), (2.4 * i - 1.0, 1.5))
    _box(axis, 4.8, 0.1, "do pilot chains confirm it?", 6.9, 0.36)
    for i in (1, 2, 3):
        _wire(axis, (2.4 * i, 1.03), (2.4 * i, 0.31), colour=ACCENT)
        axis.text(2.4 * i + 1.2, 1.62, "no", ha="center", color=SECOND, fontsize=10)
    _box(axis, 4.8, -1.0, "final search for mass that was missed", 6.9, 0.36)
    _wire(axis, (4.8, -0.1), (4.8, -0.79), colour=ACCENT)
    axis.text(4.9, -0.47, "yes", color=ACCENT, fontsize=10)
    _wire(axis, (9.6, 1.03), (9.6, -1.0), (8.28, -1.0))
    _wire(axis, (1.32, -1.0), (0.45, -1.0), (0.45, 0.8), (1.6, 0.8), (1.6, 1.03), colour=SECOND)
    axis.text(0.55, -0.5, "modes missed:\nfit again", color=SECOND, fontsize=10, va="center")
    _wire(axis, (4.8, -1.21), (4.8, -1.75))
    axis.text(4.95, -1.6, "kernel, with its record in outcome.history", color=INK, fontsize=10)
    axis.set(xlim=(-1.1, 10.8), ylim=(-1.9, 2.1))
    axis.set_axis_off()
    return figure


def deep_network() -> Figure:
    """The network of the paper's experiment: function blocks around permutations."""
    figure = Figure(figsize=(10.4, 2.6), layout="constrained")
    axis = figure.subplots()
    names = ("$I_F^{g}$", r"$I_P^{\sigma}$", "$I_F^{h}$", r"$I_P^{\sigma}$", "$I_F^{g}$")
    for i, name in enumerate(names):
        x = 1.6 + 2.0 * i
        block = i % 2 == 0
        letter = "g" if i in (0, 4) else "h"
        if block:
            _box(axis, x, 1.0, f"${letter}$", 0.7)
            _box(axis, x, 0.0, f"${letter}^{{-1}}$", 0.7)
            _crossed(axis, x + 0.37, x + 1.0)
        else:
            _box(axis, x, 0.5, r"$\sigma$", 0.6, 1.6)
            for y in (1.0, 0.0):
                _wire(axis, (x - 1.0, y), (x - 0.32, y))
                _wire(axis, (x + 0.32, y), (x + 1.63, y))
        axis.text(x, 1.75, name, ha="center", fontsize=11, color=INK)
    for y, old, new in ((1.0, "φ, π₁", "φ', π'₁"), (0.0, "π₂", "π'₂")):
        axis.text(0.15, y, old, ha="right", va="center", fontsize=11)
        axis.text(10.75, y, new, ha="left", va="center", fontsize=11)
        _wire(axis, (0.25, y), (1.23, y))
    note = "$g$, $h$: additive couplings (networks of one hidden layer), a permutation between them"
    axis.text(5.6, -0.95, note, ha="center", fontsize=9, color=INK)
    axis.set(xlim=(-0.7, 11.9), ylim=(-1.2, 2.1))
    axis.set_axis_off()
    return figure


def main() -> None:
    """Write all drawings."""
    jax.config.update("jax_enable_x64", True)
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "drawings"}):
        drawings = {
            "involution": involution(),
            "step": step(),
            "composed-blocks": composed_blocks(),
            "deep-network": deep_network(),
            "decisions": decisions(),
        }
        for name, figure in drawings.items():
            figure.savefig(IMAGES / f"{name}.svg", metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main()

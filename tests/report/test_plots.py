"""Plots that return axes: what is drawn, on which axes, and what is refused."""

import jax.numpy as jnp
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from flowjax.bijections import Affine, Invert
from test_cli import learned
from test_report import independent

import involutive as inv
from involutive.learning.stages import Cost, Fitted, Found, Looked, Proposal
from involutive.plotting import live
from involutive.plotting.canvas import bin_edges
from involutive.report.repeat import code

pytestmark = pytest.mark.usefixtures("as_users_run")


@pytest.fixture(autouse=True)
def no_display():
    """Draw without a display, and leave no figure open."""
    matplotlib.use("Agg")
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def two_modes():
    target = inv.targets.mog2_1d()
    x = np.random.default_rng(0).normal(scale=0.5, size=(4, 300, 1))
    x += np.where(np.arange(300) % 2, 2.0, -2.0)[:, None]
    return independent(target, 4, 300, target_draws=x)


def test_a_pair_plot_has_a_diagonal_contours_names_and_truths():
    draws = independent(inv.targets.gaussian(3))
    axes = draws.plot_pair(truths={"x[0]": 0.5}, modes=False)
    assert axes.shape == (3, 3)
    assert len(axes[0, 0].patches) >= 12  # the histogram on the diagonal
    assert not axes[0, 2].axison and axes[2, 0].axison
    contours = [c for c in axes[1, 0].collections if "Contour" in type(c).__name__]
    assert len(contours) == 1 and len(contours[0].get_paths()) == 2
    assert axes[2, 0].get_xlabel() == "x[0]" and axes[2, 0].get_ylabel() == "x[2]"
    assert [line.get_xdata()[0] for line in axes[2, 0].lines] == [0.5]


def test_contours_hold_the_share_they_name():
    draws = independent(inv.targets.gaussian(2), 20, 2000)
    axis = draws.plot_pair(modes=False)[1, 0]
    outer, inner = next(c for c in axis.collections if "Contour" in type(c).__name__).get_paths()
    points = draws.positions.reshape(-1, 2)
    for path, mass in ((outer, 0.9), (inner, 0.5)):
        assert abs(path.contains_points(points).mean() - mass) < 0.03


def test_modes_are_told_apart_by_colour(two_modes):
    wide = independent(inv.targets.mog2(), 2, 200)
    wide.positions[:, ::2] += 3.0
    found = wide.modes()
    axes = wide.plot_pair()
    scatter = axes[1, 0].collections[0]
    assert len(np.unique(scatter.get_facecolors(), axis=0)) == len(found)


def test_bins_follow_the_narrowest_mode():
    rng = np.random.default_rng(1)
    narrow = np.concatenate([rng.normal(-50, 0.1, 5000), rng.normal(50, 0.1, 5000)])
    wide = np.diff(np.histogram_bin_edges(narrow, "fd"))[0]  # by the quartiles of both together
    for labels in (None, (narrow > 0).astype(int)):
        assert np.diff(bin_edges(narrow, labels))[0] < 0.3 * wide
    one = rng.normal(size=100_000)  # of one hill the two ways agree
    both = [len(bin_edges(one, labels)) for labels in (None, np.zeros(one.shape, int))]
    assert abs(both[0] / both[1] - 1) < 0.15
    assert len(bin_edges(np.ones(10))) == 13


def test_traces_show_one_chain_per_panel():
    draws = independent(inv.targets.gaussian(2))
    axes = draws.plot_trace("x[1]", chains=3)
    assert axes.shape == (1, 3)
    assert [axis.get_title() for axis in axes[0]] == ["chain 0", "chain 3", "chain 7"]
    np.testing.assert_array_equal(axes[0, 1].lines[0].get_ydata(), draws.positions[3, :, 1])


def test_plots_go_onto_axes_that_are_given():
    figure, axes = plt.subplots(2, 2)
    draws = independent(inv.targets.gaussian(2))
    assert draws.plot_pair(axes=axes, modes=False)[0, 0] is axes[0, 0]
    kernel = inv.random_walk(inv.targets.gaussian(2), 0.1)
    assert draws.plot_proposal(kernel, axes=axes[0, 1]) is axes[0, 1]
    assert (
        learned(inv.targets.gaussian(2)).outcome.plot(axes=[axes[0, 0], axes[1, 1]])[1]
        is axes[1, 1]
    )
    with pytest.raises(inv.InputError, match="axes must hold 2 × 2 axes, got 1"):
        draws.plot_pair(axes=figure.axes[0])
    with pytest.raises(inv.InputError, match=r"names must be among x\[0\], x\[1\], got 'y'"):
        draws.plot_trace("y")
    with pytest.raises(inv.InputError, match="needs a kernel with one proposal"):
        draws.plot_proposal(inv.Mixture([kernel, kernel], [0.5, 0.5]))


def test_a_learned_outcome_shows_what_was_tried():
    axes = learned(inv.targets.gaussian(2)).outcome.plot()
    assert "the kernel, measured" in [t.get_text() for t in axes[0].get_yticklabels()]
    assert axes[1].get_title() == "log-variance"


def stage_results(dim):
    rng = np.random.default_rng(0)
    points, tops = rng.normal(size=(50, dim)), np.arange(2.0 * dim).reshape(2, dim)
    found = Found(
        points, points, tops, np.zeros((2, dim, dim)), np.zeros(2), 0.0, True, True, Cost()
    )
    g = Affine(jnp.full(dim, 30.0))  # a proposal far from the points, to be told apart from them
    target = inv.targets.gaussian(dim)
    kernel = inv.Kernel(target, inv.FunctionBlock(Invert(g)), inv.standard_normal(dim))
    proposal = Proposal(kernel, 0.9, 0.8)
    fitted = Fitted(found, proposal, points, points, points, 0, True, 0.0, Looked(), Cost())
    return found, fitted


@pytest.mark.parametrize("dim", [1, 3])
def test_the_live_view_draws_every_stage(dim, monkeypatch):
    shown = []

    class Handle:
        def update(self, figure):
            shown.append(figure)

    def display(figure, display_id):
        shown.append(figure)
        return Handle()

    monkeypatch.setattr(live, "in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", display)
    view = live.LiveView(inv.targets.gaussian(dim))
    for result in stage_results(dim):
        view.show(result)
    assert [picture.data[:4] for picture in shown] == 2 * [b"\x89PNG"]
    figure = live.draw_stage("gaussian", stage_results(dim)[1], [0.8])
    assert "0.80 effective draws per draw" in figure.get_suptitle()
    proposed = figure.axes[1].lines[-1].get_xdata()
    assert abs(proposed.mean() - 30) < 0.5 and abs(proposed.std() - 1) < 0.1
    heights = [bar.get_height() for bar in figure.axes[2].patches]
    assert heights == sorted(heights, reverse=True) and abs(sum(heights) - 1) < 1e-9


def test_live_outside_a_notebook_is_refused():
    with pytest.raises(inv.InputError, match="live=True needs a notebook"):
        inv.learn(inv.targets.gaussian(1), key=0, live=True)


def test_the_code_of_a_report_repeats_the_run():
    kernel = inv.random_walk(inv.targets.gaussian(2), 0.5)
    first = inv.sample(kernel, key=5, num_chains=3, num_samples=7, thin=2)
    said = code(first.provenance).splitlines()[-1]
    scope = {"inv": inv, "kernel": kernel}
    exec(said, scope)
    np.testing.assert_array_equal(scope["draws"].positions, first.positions)


def test_targets_kernels_and_outcomes_say_what_they_are():
    target = inv.Target(
        lambda mu: -0.5 * mu**2, inv.Parameters(mu=inv.Normal(0, 5)), name="<b>mean</b>"
    )
    assert repr(target).startswith("Target(<b>mean</b>: coordinates 1; parameters ")
    assert "&lt;b&gt;mean" in target._repr_html_() and "the prior" in target._repr_html_()
    kernel = inv.Mixture([inv.random_walk(target, 1.0), inv.hmc(target, 0.1, 2)], [0.25, 0.75])
    assert "25% of steps RandomWalk, auxiliary StandardNormal" in repr(kernel)
    assert "75% of steps" in kernel._repr_html_() and "Leapfrog" in kernel._repr_html_()
    outcome = learned(target).outcome
    assert repr(outcome).startswith("Outcome(learned in 3.2 s")
    assert "12,345" in outcome._repr_html_()

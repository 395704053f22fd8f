"""Targets of the literature: definitions, integrals and exact draws against each other."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.special import logsumexp

import involutive as inv
from involutive.bench.field import models, robot, synthetic
from involutive.bench.field.suite import FIELD

EXACT = ["gmm_v1", "gmm40_2", "gmm40_50", "many_well_5", "many_well_32", "funnel_10",
         "brownian_32", "robot_1", "robot_4"]  # fmt: skip


def target_of(name: str) -> inv.Target:
    return FIELD[name].make(None)


def score(gradient: np.ndarray, draws: np.ndarray, places: np.ndarray, count: float) -> float:
    """The largest over coordinates of `E[g ∂ᵢ log p + ∂ᵢ g]` in standard errors, g = tanh(xᵢ)."""
    bend = np.tanh(places)
    terms = bend * gradient + (1 - bend**2)
    return float(np.max(np.abs(terms.mean(0)) / (terms.std(0) / np.sqrt(count))))


@pytest.mark.parametrize("name", EXACT)
def test_exact_draws_are_of_the_density(name):
    """Stein's identity with a bounded function holds for exact draws and not for wider ones."""
    target = target_of(name)
    assert target.sample is not None
    draws = np.asarray(target.sample(jr.key(3), 4000), float)
    slope = jax.jit(jax.vmap(jax.grad(target.log_density)))
    gradient = lambda x: np.asarray(slope(jnp.asarray(x)), float)  # noqa: E731
    assert np.isfinite(draws).all()
    assert score(gradient(draws), draws, draws, 4000) < 5
    wide = 1.1 * draws
    assert score(gradient(wide), wide, wide, 4000) > 5


@pytest.mark.parametrize("name", ["gmm_v1", "gmm40_2"])
def test_normalised_in_the_plane(name):
    """A sum over a fine grid gives log Z."""
    ends = np.linspace(-50, 50, 1001) if name == "gmm40_2" else np.linspace(-12, 12, 481)
    grid = np.stack(np.meshgrid(ends, ends), -1).reshape(-1, 2)
    values = np.asarray(jax.vmap(target_of(name).log_density)(jnp.asarray(grid)), float)
    assert logsumexp(values) + 2 * np.log(ends[1] - ends[0]) == pytest.approx(0.0, abs=1e-3)


def test_the_means_are_those_of_the_published_repositories():
    """The first mean of GMM40 is (-15.76, 18.12): JAX 0.4's generator, not today's."""
    means = synthetic.published_uniform((40, 2), 40.0)
    assert means[0] == pytest.approx([-15.76, 18.12], abs=0.005)
    new = np.asarray(jr.uniform(jr.key(0), (40, 2), jnp.float32, -40.0, 40.0))
    assert not np.allclose(new[0], means[0], atol=0.1)


def test_integrals_of_wells():
    assert synthetic.many_well_log_z(32) == pytest.approx(164.696, abs=1e-3)
    one = synthetic.many_well_log_z(2) - 0.5 * np.log(2 * np.pi)
    assert np.exp(one) == pytest.approx(11784.50927, rel=1e-6)
    ends = np.linspace(-4, 4, 4001)
    mass = np.sum(np.exp(-((ends**2 - 4) ** 2))) * (ends[1] - ends[0])
    assert synthetic.mw54_log_z() == pytest.approx(5 * np.log(mass), abs=1e-6)


def test_students_are_normalised():
    """In one dimension, where the same formula can be summed: each component has mass 1/count."""
    target = synthetic.mos(dim=1, count=3)
    ends = np.linspace(-4000, 4000, 800_001)
    values = np.exp(np.asarray(jax.vmap(target.log_density)(jnp.asarray(ends)[:, None])))
    assert values.sum() * (ends[1] - ends[0]) == pytest.approx(1.0, abs=1e-3)


def test_brownian_motion_by_importance_sampling():
    """log Z of the grid against weights of the conditional normal: every weight is the same."""
    target = models.brownian()
    assert target.sample is not None
    log_z = models.brownian_log_z()
    assert log_z > 1.118  # above the published ELBO
    draws = np.asarray(target.sample(jr.key(0), 20_000))
    cold = np.asarray(jax.vmap(target.log_density)(jnp.asarray(draws)))
    # 1/Z = E_p[h/p] for any normalised h: a narrow normal about the mean, correlated as the draws
    mean, cov = draws.mean(0), 0.6 * np.cov(draws.T)
    gaps = np.linalg.solve(np.linalg.cholesky(cov), (draws - mean).T)
    log_h = -0.5 * np.sum(gaps**2, axis=0) - 0.5 * np.linalg.slogdet(2 * np.pi * cov)[1]
    inverse = logsumexp(log_h - cold) - np.log(len(draws))
    assert -inverse == pytest.approx(log_z, abs=0.1)


def test_the_robot_ends_at_its_goals():
    for goals in (1, 4):
        found = robot.pool(goals)
        assert found.log_z == pytest.approx(robot.LOG_Z[goals], abs=3e-3)
        ends = np.stack([np.cos(np.cumsum(found.points, 1)).sum(1),
                         np.sin(np.cumsum(found.points, 1)).sum(1)], axis=1)  # fmt: skip
        off = ends - robot.goals_of(goals)[found.goal]
        assert off.std(axis=0) == pytest.approx(robot.REACH_SD, rel=0.02)
    assert robot.shares(4) == pytest.approx(robot.SHARES, abs=0.01)


def test_particles_are_as_published():
    """Ordered pairs of LJ13 each count once; pairs of DW4 at distance 4 have no energy."""
    x = jr.normal(jr.key(0), (39,)) + jnp.repeat(jnp.arange(13.0), 3)
    places = np.asarray(x, float).reshape(13, 3)
    apart = np.linalg.norm(places[:, None] - places[None], axis=-1)[~np.eye(13, dtype=bool)]
    every = np.sum(apart**-12 - 2 * apart**-6)  # over ordered pairs, as in DEM
    expected = -every - 0.5 * np.sum((places - places.mean(0)) ** 2)
    centre = 0.5 * 13 * np.sum(places.mean(0) ** 2)
    assert float(target_of("lj13").log_density(x)) == pytest.approx(expected - centre, rel=1e-4)
    once = synthetic.densities.lennard_jones()(x)
    assert float(once) == pytest.approx(expected - centre + 0.5 * every, rel=1e-4)
    square = jnp.array([0.0, 0.0, 4.0, 0.0, 4.0, 4.0, 0.0, 4.0]) - 2.0
    diagonal = np.sqrt(32.0) - 4.0
    expected = -2 * (0.9 * diagonal**4 - 4 * diagonal**2)
    assert float(target_of("dw4").log_density(square)) == pytest.approx(expected, rel=1e-5)


def test_the_lattice_action_is_the_published_one():
    field = jnp.full(128, 0.7)
    expected = -128 * (-2 * 0.3 * 2 * 0.49 + (1 - 0.044) * 0.49 + 0.022 * 0.49**2)
    assert float(target_of("phi4_16x8").log_density(field)) == pytest.approx(expected, rel=1e-4)
    assert float(target_of("phi4_16x8").log_density(-field)) == pytest.approx(expected, rel=1e-4)


def test_seeds_is_the_model_of_its_source():
    """The density against the same model in NumPyro, at one point."""
    numpyro = pytest.importorskip("numpyro")
    dist = numpyro.distributions

    def model():
        tau = numpyro.sample("tau", dist.Gamma(0.01, 0.01))
        a = numpyro.sample("a", dist.Normal(0.0, 10.0).expand([4]).to_event(1))
        b = numpyro.sample("b", dist.Normal(0.0, 1 / jnp.sqrt(tau)).expand([21]).to_event(1))
        one, two = jnp.asarray(models.PLANT), jnp.asarray(models.ROOT)
        logits = a[0] + a[1] * one + a[2] * two + a[3] * one * two + b
        numpyro.sample("r", dist.BinomialLogits(logits, models.SOWN).to_event(1), obs=models.SEEDS)

    x = 0.3 * jr.normal(jr.key(1), (26,))
    values = {"a": x[:4], "b": x[4:25], "tau": jnp.exp(x[25])}
    log_joint, _ = numpyro.infer.util.log_density(model, (), {}, values)
    assert float(models.seeds().log_density(x)) == pytest.approx(float(log_joint + x[25]), rel=1e-5)


def test_the_cox_process_on_a_small_grid(tmp_path):
    """Without points, log Z of one cell is a one-dimensional integral."""
    (tmp_path / "pines.csv").write_text('"","x","y"\n"1",0.5,0.5\n"2",1.0,1.0\n')
    target = models.cox(tmp_path, 1)
    ends = np.linspace(-12, 14, 2601)
    values = np.asarray(jax.vmap(target.log_density)(jnp.asarray(ends)[:, None]), float)
    mean, sd = np.log(126) - models.VARIANCE / 2, np.sqrt(models.VARIANCE)
    normal = np.exp(-0.5 * ((ends - mean) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))
    expected = np.sum(normal * np.exp(2 * ends - np.exp(ends)))
    assert np.exp(logsumexp(values)) == pytest.approx(expected, rel=1e-4)
    assert models.cox(tmp_path, 2).dim == 4


def test_data_that_are_missing_are_named(tmp_path):
    assert FIELD["sonar_61"].missing(tmp_path) == "needs sonar.all-data or sonar.data in --data DIR"
    assert FIELD["gmm_v1"].missing(None) == ""
    with pytest.raises(inv.InputError, match=r"needs german.data-numeric; pass --data DIR"):
        FIELD["credit_25"].make(None)
    rows = "".join(f"{i % 7},{(3 * i) % 5},{'M' if i % 2 else 'R'}\n" for i in range(20))
    (tmp_path / "sonar.all-data").write_text(rows)
    target = FIELD["sonar_61"].make(tmp_path)
    assert target.dim == 3
    logs = 20 * np.log(0.5) - 1.5 * np.log(2 * np.pi)  # weights 0: every row has probability ½
    assert float(target.log_density(jnp.zeros(3))) == pytest.approx(logs, rel=1e-5)

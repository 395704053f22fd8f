"""Student-t mixtures: their density against SciPy's, their draws, and EM that finds the tails."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats

import involutive as inv
from involutive.auxiliary.em import _solve_degrees

WEIGHTS = np.array([0.3, 0.7])
MEANS = np.array([[0.5, -1.0], [3.0, 2.0]])
SHAPES = np.array([[[2.0, 0.4], [0.4, 0.5]], [[0.6, -0.2], [-0.2, 1.0]]])
DEGREES = np.array([2.0, 5.0])


def mixture(product: bool = False) -> inv.StudentTMixture:
    return inv.StudentTMixture(WEIGHTS, MEANS, SHAPES, DEGREES, product=product)


def test_density_is_scipys():
    x = np.array([1.2, 0.3])
    parts = zip(MEANS, SHAPES, DEGREES, strict=True)
    expected = sum(
        w * scipy.stats.multivariate_t(m, s, nu).pdf(x)
        for w, (m, s, nu) in zip(WEIGHTS, parts, strict=True)
    )
    np.testing.assert_allclose(np.exp(mixture().log_prob(jnp.asarray(x))), expected)


def test_density_of_products_is_scipys():
    x, diagonal = np.array([1.2, 0.3]), np.array([[2.0, 0.5], [0.6, 1.0]])
    law = inv.StudentTMixture(
        WEIGHTS, MEANS, np.array([np.diag(d) for d in diagonal]), DEGREES, product=True
    )
    expected = sum(
        w * np.prod(scipy.stats.t(nu, m, np.sqrt(d)).pdf(x))
        for w, m, d, nu in zip(WEIGHTS, MEANS, diagonal, DEGREES, strict=True)
    )
    np.testing.assert_allclose(np.exp(law.log_prob(jnp.asarray(x))), expected)


@pytest.mark.parametrize("product", [False, True])
def test_draws_have_the_density(product):
    """E_q[b/q] = 1 for a normalised b with lighter tails, and quantiles of one component."""
    law = mixture(product)
    rows = jax.jit(jax.vmap(law.sample))(jr.split(jr.key(0), 20_000))
    other = inv.GaussianMixture(np.ones(1), np.ones((1, 2)), 2 * np.eye(2)[None])
    ratio = jnp.exp(jax.jit(jax.vmap(other.log_prob))(rows) - jax.jit(jax.vmap(law.log_prob))(rows))
    assert abs(float(ratio.mean()) - 1) < 5 * float(ratio.std()) / 20_000**0.5
    assert float(ratio.std()) < 4  # so that 15 % off would be seen


def test_one_component_has_the_tails_of_its_degrees():
    law = inv.StudentTMixture(np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1)), 1.5)
    rows = np.asarray(jax.jit(jax.vmap(law.sample))(jr.split(jr.key(1), 20_000)))[:, 0]
    assert scipy.stats.kstest(rows, scipy.stats.t(1.5).cdf).pvalue > 1e-4
    assert scipy.stats.kstest(rows, scipy.stats.t(1.8).cdf).pvalue < 1e-4  # a test with power


@pytest.mark.parametrize("product", [False, True])
def test_em_recovers_t2_in_ten_dimensions(product):
    rng = np.random.default_rng(0)
    means, label = rng.uniform(-10, 10, size=(3, 10)), rng.integers(3, size=4000)
    scale = np.sqrt(rng.chisquare(2, size=(4000, 10 if product else 1)) / 2)
    draws = means[label] + rng.normal(size=(4000, 10)) / scale
    fit = inv.em_student_t(draws, 3, product=product)
    np.testing.assert_allclose(fit.degrees, 2.0, atol=0.3)
    np.testing.assert_allclose(np.sort(fit.weights), 1 / 3, atol=0.03)
    order = [np.abs(fit.means - mean).sum(1).argmin() for mean in means]
    np.testing.assert_allclose(fit.means[order], means, atol=0.3)
    assert fit.distribution().product == product


def test_em_counts_weights_as_copies():
    rng = np.random.default_rng(1)
    draws, copies = rng.standard_t(3, size=(300, 2)), rng.integers(0, 4, size=300)
    weighted = inv.em_student_t(draws, 1, weights=copies, means=np.zeros((1, 2)))
    repeated = inv.em_student_t(np.repeat(draws, copies, axis=0), 1, means=np.zeros((1, 2)))
    np.testing.assert_allclose(weighted.log_likelihood, repeated.log_likelihood, rtol=1e-3)
    np.testing.assert_allclose(weighted.degrees, repeated.degrees, rtol=0.05)


def test_the_digamma_equation_has_its_root_at_the_truth():
    """With E log u and E u of t_ν in d dimensions, both known exactly, ν is its own solution."""
    nu, dim = 3.0, 4
    u = (nu + dim) / (nu + dim * scipy.stats.f(dim, nu).rvs(400_000, random_state=0))
    assert abs(_solve_degrees(float(np.mean(np.log(u) - u)), nu, dim) - nu) < 0.05


def test_fit_mixture_takes_the_tails_that_fit():
    rng = np.random.default_rng(2)
    heavy = inv.fit_mixture(rng.standard_t(2, size=(1500, 3)), heavy=True, most=3)
    assert isinstance(heavy, inv.StudentTMixture)
    assert heavy.product
    turn = np.array([[1.0, 0.8, 0.2], [0.0, 1.0, 0.9], [0.0, 0.0, 1.0]])
    tilted = rng.normal(size=(1500, 3)) @ turn
    assert isinstance(inv.fit_mixture(tilted, heavy=True, most=3), inv.GaussianMixture)


def test_saved_in_a_kernel(tmp_path):
    target = inv.targets.mog2()
    kernel = inv.Kernel(target, inv.PermutationBlock.swap(4), mixture())
    inv.save(tmp_path / "k.inv", kernel)
    loaded = inv.load(tmp_path / "k.inv", target)
    x = jnp.array([0.3, 0.4])
    assert loaded.auxiliary.log_prob(x) == kernel.auxiliary.log_prob(x)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: inv.StudentTMixture(WEIGHTS, MEANS, SHAPES, [1.0, -1.0]), "degrees must be posit"),
        (lambda: inv.em_student_t(np.zeros((2, 2)), 3), "draws must be finite"),
        (lambda: inv.em_student_t(np.ones((9, 2)), 1, weights=[1.0]), "weights must be 9"),
    ],
)
def test_bad_input(make, words, as_users_run):
    with pytest.raises(inv.InputError, match=words):
        make()

"""Families, the network, and the kernel of one data set."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import involutive as inv
from involutive.amortised.kernel import Trained
from involutive.amortised.layout import layout_of
from involutive.amortised.rows import network_for, simulated
from involutive.auxiliary.defensive import DefensiveMixture, triangular_inverse

PARAMETERS = inv.Parameters(mu=inv.Normal(0, 2), sigma=inv.HalfNormal(1))
SMALL = inv.AmortiseSettings(
    components=2, width=16, depth=1, summary=4, steps=400, steps_density=0, rate=5e-3
)
ROWS = 8


def log_likelihood(mu, sigma, data):
    terms = -0.5 * ((data["y"] - mu) / sigma) ** 2 - jnp.log(sigma)
    return jnp.sum(jnp.where(data["mask"], terms, 0.0))


def simulate(key, mu, sigma):
    key_noise, key_count = jr.split(key)
    mask = jnp.arange(ROWS) < jr.randint(key_count, (), 3, ROWS + 1)
    return {"y": mu + sigma * jr.normal(key_noise, (ROWS,)), "mask": mask}


def family(**options):
    return inv.Family(log_likelihood, PARAMETERS, **{"simulate": simulate, **options})


@pytest.fixture(scope="module")
def many():
    """A kernel whose network is not trained: what is tested here holds whatever it has learned."""
    posteriors = family()
    rows = simulated(posteriors, SMALL, jr.key(0))
    network = network_for(posteriors, rows, SMALL, jr.key(1))
    return inv.FamilyKernel(posteriors, network, Trained(0.0, 0.0, 0, 0.0, True))


def data_set(count=5, at=1.0):
    return {"y": at + np.random.default_rng(count).normal(size=count)}


# ── Data sets ──────────────────────────────────────────────────────────────────────────────────


def test_data_sets_of_unequal_length_are_padded_with_a_mask():
    layout = layout_of([data_set(3), data_set(5)], None)
    padded = layout.padded(data_set(3))
    assert layout.exchangeable and layout.rows == 5
    assert padded["y"].shape == (5,) and padded["mask"].tolist() == [True] * 3 + [False] * 2
    assert layout.padded(data_set(7))["y"].shape == (10,)


def test_data_sets_of_one_shape_stay_as_they_are():
    layout = layout_of([np.ones((2, 3)), np.zeros((2, 3))], None)
    assert not layout.exchangeable
    assert layout.padded(np.ones((2, 3))).shape == (2, 3)


def test_what_is_outside_the_mask_may_be_anything():
    data = {"y": np.array([1.0, np.nan, 2.0]), "mask": np.array([True, False, True])}
    padded = family().layout.padded(data)
    assert padded["y"].tolist()[:3] == [1.0, 2.0, 0.0] and padded["mask"].sum() == 2


def test_the_target_of_a_data_set_is_its_posterior():
    data = data_set(5)
    target = family().at(data)
    plain = inv.Target(
        lambda mu, sigma: jnp.sum(-0.5 * ((data["y"] - mu) / sigma) ** 2 - jnp.log(sigma)),
        PARAMETERS,
    )
    x = jnp.array([0.3, -0.2])
    assert np.isclose(float(target.log_density(x)), float(plain.log_density(x)))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: inv.Family(log_likelihood, PARAMETERS), "data=, a list of data sets, or simulate"),
        (lambda: inv.Family(log_likelihood, PARAMETERS, data=[]), "at least one data set"),
        (lambda: inv.Family(log_likelihood, PARAMETERS, data={"y": 1}), "list of data sets"),
        (lambda: inv.Family(3, PARAMETERS, data=[1.0]), "must be a function"),
        (lambda: family(simulate=lambda key, mu, sigma: {"x": 1 / 0}), "ZeroDivisionError"),
        (
            lambda: inv.Family(
                lambda mu, sigma, data: -jnp.sum((data["y"] - 3) ** 2) - mu**2 - sigma**2,
                PARAMETERS, data=[{"y": np.ones(3)}, {"y": np.ones(4)}],
            ),
            "must ignore rows where data['mask'] is false",
        ),
        (
            lambda: inv.Family(
                log_likelihood, PARAMETERS, data=[np.ones(3), np.ones(4)]
            ),
            "must be dicts of arrays",
        ),
        (
            lambda: inv.Family(
                lambda x, data: -jnp.sum((x - data) ** 2), 2,
                simulate=lambda key: jr.normal(key, (3,)),
            ),
            "must return the pair",
        ),
        (
            lambda: inv.Family(
                lambda x, data: -jnp.sum((x - data[:2]) ** 2), 2,
                simulate=lambda key: (jnp.ones(3), jr.normal(key, (4,))),
            ),
            "position of 2 numbers",
        ),
        (
            lambda: inv.Family(
                lambda mu, sigma, data: -(mu**2) - sigma**2 - jnp.sum(data), PARAMETERS,
                data=[np.ones(3)], simulate=lambda key, mu, sigma: jr.normal(key, (4,)),
            ),
            "simulate must return data sets like those of data=",
        ),
        (lambda: family().at({"x": np.ones(3)}), "a dict of y, got a dict of x"),
        (lambda: family().at({"y": np.ones((3, 2))}), "must have shape (n)"),
        (lambda: family().at({"y": np.array([np.nan])}), "must be finite"),
        (lambda: family().at({"y": np.ones(0)}), "at least one observation"),
        (lambda: family().at({"y": 3.0}), "must have shape (n)"),
        (lambda: family().at({"y": ["a", "b"]}), "y of a data set must hold numbers"),
        (lambda: family().at({}), "at least one array"),
        (lambda: family().at({"y": [[1.0], [1.0, 2.0]]}), "an array or a dict of arrays"),
        (lambda: inv.Family(log_likelihood, PARAMETERS, data=jnp.ones(())), "list of data sets"),
        (
            lambda: family(data=[data_set(3), {"y": np.array([1.0, np.inf])}]),
            "data set 1: y of a data set must be finite",
        ),
        (lambda: inv.amortise(family(), key=None), "key must be an int seed"),
        (lambda: inv.amortise(3, key=0), "must be an inv.Family"),
        (
            lambda: inv.amortise(
                family(simulate=None, data=[data_set(3), data_set(4)]), key=0, progress=False
            ),
            "at least 8",
        ),
        (
            lambda: inv.amortise(family(), key=0, budget=inv.Budget(evaluations=10)),
            "must be in seconds",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_named_in_one_line(make, words, as_users_run):
    with pytest.raises(inv.InputError) as error:
        make()
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_density_that_simulated_pairs_contradict_is_refused():
    other = inv.Family(
        lambda mu, sigma, data: jnp.where(mu > 100, 0.0, -jnp.inf) + 0 * sigma * data["y"].sum(),
        PARAMETERS, simulate=lambda key, mu, sigma: {"y": jr.normal(key, (3,))},
    )  # fmt: skip
    with pytest.raises(inv.InputError, match="do both describe one model"):
        inv.amortise(other, key=0, settings=SMALL, progress=False)


# ── The proposal ───────────────────────────────────────────────────────────────────────────────


def mixture(key, share=0.05):
    keys = jr.split(key, 3)
    factors = jnp.tril(jr.normal(keys[0], (3, 2, 2)))
    factors = factors.at[:, jnp.arange(2), jnp.arange(2)].set(jnp.exp(jr.normal(keys[1], (3, 2))))
    means = 2 * jr.normal(keys[2], (3, 2))
    return DefensiveMixture(jnp.array([0.0, 1.0, -1.0]), means, factors, share)


def test_triangular_matrices_are_inverted(getkey):
    factors = jnp.tril(jr.normal(getkey(), (4, 3, 3))) + 3 * jnp.eye(3)[None]
    product = jnp.einsum("kij,kjl->kil", triangular_inverse(factors), factors)
    assert np.allclose(product, np.tile(np.eye(3), (4, 1, 1)))


def test_the_covered_mixture_integrates_to_one(getkey):
    law = mixture(getkey(), 0.3)
    grid = np.linspace(-60, 60, 601)
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    log_q = jax.jit(jax.vmap(law.log_prob))(jnp.asarray(points))
    mass = np.exp(np.asarray(log_q)).sum() * 0.2**2
    assert abs(mass - 1) < 0.01


def test_draws_of_the_covered_mixture_have_its_density(getkey):
    law, other = mixture(getkey()), inv.standard_normal(2)
    x = jax.jit(jax.vmap(law.sample))(jr.split(getkey(), 20_000))
    log_ratio = jax.jit(jax.vmap(lambda x: other.log_prob(x) - law.log_prob(x)))(x)
    ratio = np.exp(np.asarray(log_ratio))
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / len(ratio) ** 0.5
    below = np.asarray(law.responsibilities(law.means[1])).argmax()
    assert below == 1


# ── One data set ───────────────────────────────────────────────────────────────────────────────


def invariance(kernel, exact, key, bug=None, least=0.3):
    """The largest z-score of first and second moments after steps from exact draws."""
    from involutive.kernel.kernel import Proposed, settle

    proposal = kernel.proposal

    def step(state, key):
        noise, _, level = proposal.draw(key)
        found = proposal.propose(state, noise)
        if bug is not None:
            found = Proposed(found.state, found.auxiliary, bug(found.log_ratio), found.reversible)
        return settle(level, state, found)[0]

    @jax.jit
    def run(starts, keys):
        states = jax.vmap(kernel.init)(starts)
        for number in range(3):
            folded = jax.vmap(jr.fold_in, (0, None))(keys, number)
            states = jax.vmap(step)(states, folded)
        return states.position

    end = np.asarray(run(jnp.asarray(exact), jr.split(key, len(exact))))
    z = []
    for power in (1, 2):
        a, b = end**power, exact**power
        difference = a - b  # the same chains before and after
        z.append(np.abs(difference.mean(0)) / (difference.std(0) / len(a) ** 0.5))
    assert (end != exact).any(axis=1).mean() > least
    return np.max(z)


@pytest.fixture(scope="module")
def exact():
    """Exact draws of one posterior, by importance resampling on a grid of 2 coordinates."""
    target = family().at(data_set())
    rng = np.random.default_rng(1)
    grid = np.stack(np.meshgrid(np.linspace(-3, 5, 400), np.linspace(-4, 3, 400)), -1)
    points = grid.reshape(-1, 2)
    log_p = target.evaluate_rows(points)
    weights = np.exp(log_p - log_p.max())
    pick = rng.choice(len(points), 20_000, p=weights / weights.sum())
    cell = np.array([8 / 399, 7 / 399])
    return points[pick] + cell * (rng.uniform(size=(20_000, 2)) - 0.5)


def test_the_kernel_leaves_its_posterior_invariant(many, exact, getkey):
    assert invariance(many.at(data_set()), exact, getkey(), least=0.1) < 4.5


@pytest.mark.parametrize("bug", [lambda r: 1.5 * r, lambda r: jnp.zeros_like(r)])
def test_a_planted_bug_is_caught(many, exact, getkey, bug):
    assert invariance(many.at(data_set()), exact, getkey(), bug, least=0.1) > 6


def test_network_and_kernel_are_saved_and_loaded(many, tmp_path):
    inv.save(tmp_path / "many.inv", many)
    again = inv.load(tmp_path / "many.inv", many.family)
    before, after = (k.at(data_set()).initial.log_prob(jnp.zeros(2)) for k in (many, again))
    assert float(before) == float(after) and again.outcome == many.outcome
    kernel = many.at(data_set())
    inv.save(tmp_path / "one.inv", kernel)
    loaded = inv.load(tmp_path / "one.inv", many.family.at(data_set()))
    first, second = (
        inv.sample(k, key=0, num_chains=2, num_samples=5, progress=False).positions
        for k in (kernel, loaded)
    )
    assert (first == second).all()


def test_a_network_of_another_family_is_refused_or_warned_of(many, tmp_path):
    inv.save(tmp_path / "many.inv", many)
    other = inv.Family(lambda x, data: -jnp.sum((x - data) ** 2), 2, data=[np.zeros(2), np.ones(2)])
    with pytest.raises(inv.InputError, match="another form"):
        inv.load(tmp_path / "many.inv", other)
    twice = inv.Family(
        lambda mu, sigma, data: 2 * log_likelihood(mu, sigma, data), PARAMETERS, simulate=simulate
    )
    with pytest.warns(UserWarning, match="another density"):
        inv.load(tmp_path / "many.inv", twice)


# ── Streams ────────────────────────────────────────────────────────────────────────────────────


def test_a_stream_has_the_proposal_of_all_observations(many):
    old, new = data_set(5), data_set(3, at=0.0)
    both = {"y": np.concatenate([old["y"], new["y"]])}
    stream = many.stream(old).add(new)
    x = jnp.array([0.4, 0.1])
    direct, streamed = many.at(both), stream.kernel()
    assert np.isclose(float(direct.initial.log_prob(x)), float(stream.proposal.log_prob(x)))
    assert np.isclose(float(direct.target.log_density(x)), float(streamed.target.log_density(x)))
    before = many.at(old).initial
    assert not np.isclose(float(before.log_prob(x)), float(stream.proposal.log_prob(x)))


def test_the_order_of_observations_means_nothing(many):
    data = data_set(6)
    x = jnp.array([0.4, 0.1])
    laws = [many.at({"y": y}).initial for y in (data["y"], data["y"][::-1])]
    assert np.isclose(*(float(law.log_prob(x)) for law in laws))


# ── Many data sets ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"data_sets": []}, "at least one data set"),
        ({"data_sets": {"y": 1}}, "list of data sets"),
        ({"data_sets": [{"y": np.ones(3)}, {"z": np.ones(3)}]}, "data set 1: a data set must be"),
        ({"data_sets": [data_set(), {"y": [np.nan]}]}, "data set 1: y of a data set must be fini"),
        ({"executor": 3}, "executor must have submit"),
        ({"num_chains": 2}, "num_chains must be at least 4"),
        ({"num_samples": 3}, "num_samples must be at least 16"),
        ({"key": None}, "key must be"),
    ],
)
def test_mistakes_of_many_are_named(many, options, words, as_users_run):
    chosen = {"data_sets": [data_set()], "key": 0} | options
    with pytest.raises(inv.InputError, match=words):
        inv.sample_many(many, progress=False, **chosen)

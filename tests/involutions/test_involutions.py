"""The blocks one by one: uniform permutations, safe matrices, and words for every bad input."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
import scipy.stats
from flowjax import bijections as fb

import involutive as inv
from involutive.involutions.architectures import state_scaling


def involutions_of(n: int) -> list[tuple[int, ...]]:
    """All involutions of n points, by going through all permutations."""
    return [s for s in itertools.permutations(range(n)) if all(s[s[i]] == i for i in range(n))]


@pytest.mark.parametrize("n", range(1, 7))
def test_random_permutations_are_uniform_among_all_involutions(n):
    every = involutions_of(n)
    assert len(every) == [1, 1, 2, 4, 10, 26, 76][n]
    draws = 20 * len(every)
    counts = dict.fromkeys(every, 0)
    for seed in range(draws):
        counts[tuple(np.asarray(inv.PermutationBlock.random(seed, n).sigma).tolist())] += 1
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 1e-3 if n > 1 else True


def test_random_permutation_of_many_points():
    """The counts t(n) overflow long before this; their ratios do not."""
    sigma = np.asarray(inv.PermutationBlock.random(0, 5000).sigma)
    assert (sigma[sigma] == np.arange(5000)).all()
    # about √n points are fixed
    assert 30 < (sigma == np.arange(5000)).sum() < 120


def test_swap_exchanges_halves():
    z, log_det = inv.PermutationBlock.swap(4)(jnp.arange(4.0))
    assert z.tolist() == [2, 3, 0, 1] and log_det == 0


# ── matrix blocks ───────────────────────────────────────────────────────────────────────────────


def raw_matrix(v, w):
    """A matrix block with parameters as an optimiser leaves them: no check, no turning."""
    block = inv.MatrixBlock.trainable(jnp.ones(v.shape), jnp.ones(v.shape))
    return eqx.tree_at(lambda m: (m.v, m.w), block, (v, w))


def fuzzed(key, n, size):
    """Pairs (v, w) over all scales, at all angles: near 0°, 90° and 180° above all."""
    keys = jr.split(key, 6)
    v, other, noise = (jr.normal(k, (n, size)) for k in keys[:3])
    across = other - v * (jnp.sum(v * other, 1) / jnp.sum(v * v, 1))[:, None]
    tiny = 10.0 ** jr.uniform(keys[3], (n, 1), minval=-9, maxval=0)
    kind = jnp.arange(n)[:, None] % 5
    near = jnp.where(kind == 1, across + tiny * v, jnp.where(kind == 2, v, -v) + tiny * noise)
    w = jnp.where(kind == 0, other, jnp.where(kind == 4, -v, near))
    scale_v, scale_w = 10.0 ** jr.uniform(keys[4], (2, n, 1), minval=-18, maxval=18)
    return scale_v * v, scale_w * w


@pytest.mark.parametrize("size", [1, 2, 3, 8, 32])
def test_no_matrix_parameter_blows_up(size):
    """100 000 parameters in float32: the angle stays acute, and f undoes itself to 1e-5."""

    @jax.jit
    def look(key):
        key_parameters, key_z = jr.split(key)
        v, w = fuzzed(key_parameters, 20_000, size)

        def one(v, w, z):
            block = raw_matrix(v, w)
            a, b = block.directions()
            return a @ b, jnp.max(jnp.abs(block(block(z)[0])[0] - z)) / jnp.linalg.norm(z)

        return jax.vmap(one)(v, w, jr.normal(key_z, v.shape))

    with jax.enable_x64(False):
        cosine, error = look(jr.key(size))
    assert cosine.dtype == error.dtype == jnp.float32
    assert float(jnp.min(cosine)) >= 0.1
    assert float(jnp.max(error)) <= 1e-5


@pytest.mark.deep
def test_matrix_stays_safe_after_large_optimiser_steps(getkey):
    """Adam at rate 1 on a loss that wants v and w orthogonal, and the map to grow."""
    block, z = inv.MatrixBlock.random(getkey(), 4), jr.normal(getkey(), (64, 4))
    optimiser = optax.adam(1.0)

    @eqx.filter_jit
    def descend(block, memory):
        def loss(block):
            a, b = block.directions()
            return (a @ b) ** 2 - jnp.mean(jax.vmap(block)(z)[0] ** 2)

        value, gradient = eqx.filter_value_and_grad(loss)(block)
        updates, memory = optimiser.update(gradient, memory)
        return eqx.apply_updates(block, updates), memory, value

    memory = optimiser.init(block)
    for _ in range(200):
        block, memory, value = descend(block, memory)
        assert jnp.isfinite(value)
    a, b = block.directions()
    assert float(a @ b) == pytest.approx(0.2, abs=1e-6)  # it went to the wall, and stayed
    back = jax.vmap(block)(jax.vmap(block)(z)[0])[0]
    np.testing.assert_allclose(back, z, atol=1e-12)


@pytest.mark.parametrize("cosine", [1.0, 0.9, 0.5, 0.25, -0.25, -0.9, -1.0])
def test_matrix_is_the_printed_formula_at_moderate_angles(cosine):
    v = jnp.array([3.0, 0.0, 4.0])
    w = 7 * (cosine * v / 5 + np.sqrt(1 - cosine**2) * jnp.array([0.0, 1.0, 0.0]))
    z = jnp.array([0.3, -1.0, 2.0])
    expected = z - 2 * v * (w @ z) / (v @ w)
    np.testing.assert_allclose(inv.MatrixBlock(v, w)(z)[0], expected, rtol=1e-12)
    np.testing.assert_allclose(inv.MatrixBlock.trainable(v, w)(z)[0], expected, rtol=1e-12)


def test_a_pair_given_by_hand_is_never_turned():
    """Of random pairs in 32-D, three in four have a cosine below the one trainable blocks keep."""
    keys = jr.split(jr.key(0), 40)
    vs, ws = (jnp.stack([jr.normal(k, (32,)) for k in half]) for half in (keys[:20], keys[20:]))
    z, turned = jnp.linspace(-1.0, 2.0, 32), 0
    for v, w in zip(vs, ws, strict=True):
        matrix = np.eye(32) - 2 * np.outer(v, w) / float(v @ w)
        np.testing.assert_allclose(inv.MatrixBlock(v, w)(z)[0], matrix @ z, rtol=1e-9, atol=1e-9)
        turned += not np.allclose(inv.MatrixBlock.trainable(v, w)(z)[0], matrix @ z)
    assert turned >= 10


def test_matrix_is_continuous_in_its_parameters(getkey):
    """Where w is turned, it is turned without a jump, also through 90° and 180°."""
    v, across, z = jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0]), jr.normal(getkey(), (2,))
    angle = jnp.linspace(0, 2 * jnp.pi, 20_001)[:, None]
    w = jnp.cos(angle) * v[None] + jnp.sin(angle) * across[None]
    moved = jax.jit(jax.vmap(lambda w: raw_matrix(v, w)(z)[0]))(w)
    assert float(jnp.max(jnp.abs(jnp.diff(moved, axis=0)))) < 0.05


def test_matrix_gradient_is_finite_at_the_worst_places(getkey):
    z = jr.normal(getkey(), (2,))
    slope = eqx.filter_jit(jax.grad(lambda block: jnp.sum(block(z)[0] ** 2)))
    for w in ([1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, 0.0]):
        block = raw_matrix(jnp.array([1.0, 0.0]), jnp.array(w))
        gradient = slope(block)
        assert bool(jnp.all(jnp.isfinite(gradient.v)) & jnp.all(jnp.isfinite(gradient.w))), w


# ── words for every bad input ───────────────────────────────────────────────────────────────────

G3, SWAP4 = fb.Identity((3,)), inv.PermutationBlock.swap(4)
BAD = {
    "not an involution": (
        lambda: inv.PermutationBlock([1, 2, 0]),
        r"sigma must be its own inverse on 0..2, got \[1, 2, 0\]; PermutationBlock.random",
    ),
    "out of range": (lambda: inv.PermutationBlock([0, 3]), "its own inverse on 0..1"),
    "negative": (lambda: inv.PermutationBlock([-1, 0]), "its own inverse on 0..1"),
    "no indices": (lambda: inv.PermutationBlock([]), r"list of indices, got .* shape \(0,\)"),
    "floats": (lambda: inv.PermutationBlock([0.0, 1.0]), "list of indices, .* dtype float64"),
    "a table": (lambda: inv.PermutationBlock([[0, 1]]), r"list of indices, .* shape \(1, 2\)"),
    "zero points": (lambda: inv.PermutationBlock.random(0, 0), "n must be at least 1, got 0"),
    "half a point": (lambda: inv.PermutationBlock.random(0, 2.5), "n must be a whole number"),
    "odd swap": (lambda: inv.PermutationBlock.swap(5), "a swap needs an even size, got 5"),
    "no key": (lambda: inv.PermutationBlock.random(None, 3), "int seed or a JAX key, got None"),
    "v is zero": (
        lambda: inv.MatrixBlock([0.0, 0.0], [1.0, 0.0]),
        r"v must be finite and not zero, got \[0.0, 0.0\]",
    ),
    "orthogonal": (
        lambda: inv.MatrixBlock([1.0, 0.0], [1e-8, 1.0]),
        r"near orthogonal, got a cosine of 1e-08: .* wrong by about 9 of z; use .*trainable",
    ),
    "w is NaN": (lambda: inv.MatrixBlock([1.0], [float("nan")]), "w must be finite and not zero"),
    "two sizes": (
        lambda: inv.MatrixBlock([1.0], [1.0, 2.0]),
        r"vectors of one size, got shapes \(1,\) and \(2,\)",
    ),
    "g is a function": (
        lambda: inv.FunctionBlock(lambda x: x),
        "g must be a FlowJAX bijection, got function",
    ),
    "g of a matrix": (
        lambda: inv.FunctionBlock(fb.Identity((2, 2))),
        r"unconditional bijection of one vector, got shape \(2, 2\)",
    ),
    "g with a condition": (
        lambda: inv.FunctionBlock(fb.AdditiveCondition(lambda c: c, (2,), (2,))),
        r"unconditional bijection of one vector, got .*condition \(2,\)",
    ),
    "conjugate sizes": (
        lambda: inv.Conjugate(G3, SWAP4),
        "g and inner must act on the same number of coordinates, got 3 and 4",
    ),
    "inner is a bijection": (
        lambda: inv.Conjugate(G3, G3),
        "inner must be an involution, got Identity",
    ),
    "outer is a bijection": (
        lambda: inv.Sandwich(G3, SWAP4),
        "outer must be an involution, got Identity",
    ),
    "sandwich sizes": (
        lambda: inv.Sandwich(inv.PermutationBlock.swap(2), SWAP4),
        "outer and inner must act on the same number of coordinates, got 2 and 4",
    ),
    "odd paper": (
        lambda: inv.paper_network(0, state_dim=2, aux_dim=3),
        r"must be even, .* got 2 \+ 3 = 5; use aux_dim=4",
    ),
    "small paper": (
        lambda: inv.paper_network(0, state_dim=1, aux_dim=1),
        "at least 4, got 2; use a larger aux_dim",
    ),
    "no auxiliary": (
        lambda: inv.paper_network(0, state_dim=2, aux_dim=0),
        "aux_dim must be at least 1, got 0",
    ),
    "no width": (lambda: inv.paper_network(0, width=0), "width must be at least 1, got 0"),
    "odd swap network": (
        lambda: inv.swap_network(0, 2, 3),
        "state_dim \\+ aux_dim must be even, .* got 5; use aux_dim=4",
    ),
    "no blocks": (
        lambda: inv.additive_cascade(jr.key(0), 4, blocks=0),
        "blocks must be at least 1, got 0",
    ),
    "one coordinate": (
        lambda: inv.additive_cascade(jr.key(0), 1),
        "both parts non-empty, got dim=1 cut at 0; use dim of at least 2",
    ),
    "negative scale": (lambda: state_scaling(-1.0, 2, 2), "scale must be positive, got -1.0"),
}


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(("build", "words"), BAD.values(), ids=BAD)
def test_bad_input_is_named(build, words):
    with pytest.raises(inv.InputError, match=words) as error:
        build()
    assert "\n" not in str(error.value)


def test_paper_network_is_the_papers():
    """Widths 8 times the input, three parts, the outer block used twice, σ shared."""
    f = inv.paper_network(0)
    assert f.size == 32 and f.volume_preserving
    couplings = [p for p in f.outer.g.bijections if isinstance(p, inv.AdditiveCoupling)]
    assert [type(p).__name__ for p in f.outer.g.bijections].count("Permute") == 1
    assert len(couplings) == 4
    for coupling in couplings:
        assert coupling.net.in_size == 8 and coupling.net.width_size == 64
    assert isinstance(f.inner.outer, inv.PermutationBlock)

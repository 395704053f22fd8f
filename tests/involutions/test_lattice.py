"""Lattice mode: f(f(z)) == z bit for bit, and what leaves the exact range is rejected."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest
from flowjax import bijections as fb

import involutive as inv
from involutive.bijections.couplings import lattice_range, round_to
from involutive.involutions.classical import RandomWalk
from zoo import LATTICE, autoregressive, hostile, skewed

BATCH, BLOCK = 20_000, 2000  # points at once, and what caches like


@eqx.filter_jit
def count_exact(f, key):
    """How many of a batch of points return bit for bit, how many were outside the exact range.

    The second application is compiled apart from the first and also beside it, as in a chain.
    """

    def block(z):
        there, log_det = jax.vmap(f)(z)
        back, log_det_back = jax.vmap(f)(there)
        inside = log_det == 0
        symmetric = log_det == log_det_back
        exact = jnp.all(back == z, axis=1) | ~inside
        return jnp.sum(exact & symmetric), jnp.sum(~inside)

    z = f.snap(4 * jr.normal(key, (BATCH, f.size)))
    return jax.tree.map(jnp.sum, jax.lax.map(block, z.reshape(-1, BLOCK, f.size)))


@eqx.filter_jit
def apply(f, z):
    return jax.vmap(f)(z)


def batches(f, count, seed=0):
    exact = outside = 0
    for i in range(count):
        good, out = count_exact(f, jr.fold_in(jr.key(seed), i))
        exact, outside = exact + int(good), outside + int(out)
    return exact, outside


SLOW = {
    "paper",
    "nested",
    "swap-network",
}  # to compile; ten million points of each in the deep suite


@pytest.mark.parametrize("x64", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize("name", [name for name in LATTICE if name not in SLOW])
def test_every_point_returns(name, x64):
    with jax.enable_x64(x64):
        f = inv.lattice(LATTICE[name](jr.key(5)))
        exact, outside = batches(f, 1)
        assert exact == BATCH and outside == 0


precisions = pytest.mark.parametrize(
    "x64",
    [pytest.param(False, id="float32"), pytest.param(True, id="float64", marks=pytest.mark.deep)],
)


@precisions
def test_the_papers_network_returns_also_between_two_calls(x64, getkey):
    """100 000 points, through one compiled map called twice, as two steps of a chain call it."""
    with jax.enable_x64(x64):
        f = inv.lattice(inv.paper_network(0))
        z = f.snap(4 * jr.normal(getkey(), (100_000, f.size)))
        there, log_det = apply(f, z)
        back, _ = apply(f, there)
        assert bool(jnp.all(back == z)) and bool(jnp.all(log_det == 0))
        assert float(jnp.mean(jnp.all(there == z, axis=1))) < 0.01


@pytest.mark.deep
@pytest.mark.row(7)
@pytest.mark.parametrize("x64", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize("name", LATTICE)
def test_ten_million_points_return(name, x64, record):
    """The paper's network at 10^7 points, every other map at 10^6."""
    count = 10_000_000 if name == "paper" else 1_000_000
    with jax.enable_x64(x64):
        f = inv.lattice(LATTICE[name](jr.key(5)))
        exact, outside = batches(f, count // BATCH, seed=1)
        record(7, lattice_points=count, lattice_points_wrong=count - exact)
        assert exact == count and outside == 0


@pytest.mark.deep
@precisions
def test_hostile_weights_return_or_are_rejected(x64):
    """Weights six times too large send points to 10^7: beyond float32's range, not float64's."""
    with jax.enable_x64(x64):
        f = inv.lattice(hostile(LATTICE["paper"], 6.0)(jr.key(5)))
        exact, outside = batches(f, 1)
        assert exact == BATCH
        assert outside == (0 if x64 else BATCH)


@pytest.mark.deep
def test_lattice_is_close_to_the_map_it_rounds(getkey):
    f = inv.paper_network(0)
    z = round_to(jr.normal(getkey(), (100, f.size)), 2.0**-12)
    rounded, _ = apply(inv.lattice(f), z)
    plain, _ = apply(f, z)
    assert float(jnp.max(jnp.abs(rounded - plain))) < 0.02
    fine, _ = apply(inv.lattice(f, bits=30), z)
    assert float(jnp.max(jnp.abs(fine - plain))) < 1e-6


def test_outside_the_exact_range_is_rejected_and_counted():
    """The range is symmetric: from outside in is as impossible as from inside out."""
    with jax.enable_x64(False):
        f = inv.lattice(inv.PermutationBlock.swap(2))
        edge = lattice_range(jnp.dtype("float32"), f.grid)
        assert edge == 1024
        assert f(jnp.array([edge - 1, 0.0]))[1] == 0
        assert f(jnp.array([edge, 0.0]))[1] == f(jnp.array([0.0, edge]))[1] == -jnp.inf

        flat = inv.Target(lambda x: -1e-30 * jnp.sum(x**2), 1)
        leap = fb.Chain([inv.AdditiveCoupling(lambda a: 2 * a, 2, 1)])
        kernel = inv.Kernel(
            flat,
            inv.lattice(inv.Conjugate(leap, inv.PermutationBlock.swap(2))),
            inv.standard_normal(1),
        )
        state = kernel.init(jnp.array([600.0]))
        assert float(kernel.propose(state, jnp.zeros(1)).log_ratio) == -jnp.inf
        after, info = kernel.step(jr.key(0), state)
        assert bool(info.irreversible) and not bool(info.accepted) and not bool(info.nonfinite)
        assert float(after.position[0]) == 600.0
        draws = inv.sample(kernel, key=0, num_chains=2, num_samples=10, initial=[[600.0], [1.0]])
        assert draws.irreversible[0] == 10 and draws.irreversible[1] == 0


@pytest.mark.deep
@pytest.mark.parametrize("name", LATTICE)
def test_gradients_flow_through_the_rounding(name, getkey):
    """The gradient of the rounded map is that of the plain one, at nearly the same points."""
    f = LATTICE[name](jr.key(5))
    z = inv.lattice(f, bits=40).snap(jr.normal(getkey(), (16, f.size)))

    def loss(f):
        return jnp.mean(jnp.sin(jax.vmap(f)(z)[0]))

    gradient = eqx.filter_jit(eqx.filter_grad(loss))
    rounded, plain = gradient(inv.lattice(f, bits=40)), gradient(f)
    for a, b in zip(jax.tree.leaves(rounded), jax.tree.leaves(plain), strict=True):
        assert bool(jnp.allclose(a, b, rtol=1e-4, atol=1e-7))


@pytest.mark.deep
def test_positions_start_and_stay_on_the_lattice(getkey):
    kernel = inv.Kernel(skewed(2), inv.lattice(inv.paper_network(0, 2, 4)), inv.standard_normal(4))
    draws = inv.sample(kernel, key=0, num_chains=8, num_samples=50)
    scaled = draws.positions * 2**12
    assert (scaled == scaled.round()).all() and draws.accepted.mean() > 0.05
    assert (draws.irreversible == 0).all()


def test_kernels_on_and_off_a_lattice_do_not_mix():
    """A step off the lattice would be rounded by the next, which is no involution."""
    target = skewed(2)
    on = inv.Kernel(target, inv.lattice(inv.paper_network(0, 2, 4)), inv.standard_normal(4))
    finer = inv.Kernel(
        target, inv.lattice(inv.paper_network(0, 2, 4), bits=16), inv.standard_normal(4)
    )
    words = "kernels must move on one lattice, or none of them on any, got spacings"
    for pair in ([on, inv.random_walk(target, 1.0)], [on, finer]):
        with pytest.raises(inv.InputError, match=words):
            inv.Cycle(pair)
        with pytest.raises(inv.InputError, match=words):
            inv.Mixture(pair, [0.5, 0.5])
    both = inv.Cycle([on, on])
    position = both.init(jnp.array([0.1, 0.2])).position * 2**12
    assert bool(jnp.all(position == jnp.round(position)))


REFUSED = {
    "autoregressive": lambda: inv.Conjugate(
        autoregressive(4)(jr.key(0)), inv.PermutationBlock.swap(4)
    ),
    "affine": lambda: inv.FunctionBlock(fb.Affine(jnp.zeros(2), jnp.full(2, 2.0))),
    "inside a sandwich": lambda: inv.Sandwich(
        inv.PermutationBlock.swap(4), inv.FunctionBlock(fb.Affine(jnp.zeros(2)))
    ),
    "random walk": lambda: RandomWalk(1.0, 2),
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_refuses_what_it_cannot_make_exact(make):
    words = (
        "lattice mode needs additive couplings, permutations and matrix blocks throughout, got "
        r"\w+; build g with additive_cascade, or use Kernel\(..., guard=1e-6\)"
    )
    with pytest.raises(inv.InputError, match=words):
        inv.lattice(make())


@pytest.mark.usefixtures("as_users_run")
def test_refuses_what_is_no_involution_and_no_bits():
    with pytest.raises(inv.InputError, match="f must be an involution, got int"):
        inv.lattice(3)
    with pytest.raises(inv.InputError, match="bits must be at least 1, got 0"):
        inv.lattice(inv.PermutationBlock.swap(2), bits=0)

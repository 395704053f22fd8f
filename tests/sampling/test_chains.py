"""The chain runner: what a chain draws depends on the seed and its number, and on nothing else."""

from functools import cache

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flowjax.distributions import Normal, Uniform
from scipy.stats import kstest, norm

import involutive as inv
from involutive._xla.generator import UNROLLED, _hash, _pair, normal, unrolled
from involutive.sampling.devices import Share, share_of
from involutive.sampling.runner import Chains
from involutive.sampling.sample import parameter_hash
from involutive.sampling.trace import Row, empty_trace, packed, unpack
from zoo import skewed


def network_kernel(target=None):
    target = target or skewed(2)
    return inv.Kernel(target, inv.paper_network(0, 2, 4), inv.standard_normal(4))


KERNEL, WALK = network_kernel(), inv.random_walk(skewed(2), 1.0)


def run(kernel=WALK, **settings):
    return inv.sample(kernel, **{"key": 0, "num_chains": 4, "num_samples": 40, **settings})


def same(a, b):
    """Equality of bits, with NaN equal to NaN."""
    return np.array_equal(a, b, equal_nan=True)


@cache
def thousand():
    return run(KERNEL, num_chains=1000, num_samples=20)


@pytest.mark.parametrize("chains", [1, 4, 64])
def test_chain_k_draws_the_same_beside_any_number_of_others(chains):
    """Bit for bit, through a network: the last bits of a matrix product depend on its shape."""
    assert other_bits(chains) == 0


def other_bits(chains):
    """How many values of a run of so many chains differ from those beside a thousand."""
    many, few = thousand(), run(KERNEL, num_chains=chains, num_samples=20)
    parts = ("positions", "log_density", "accepted")
    pairs = [(getattr(few, part), getattr(many, part)[:chains]) for part in parts]
    assert all(a.shape == b.shape and a.dtype == b.dtype for a, b in pairs)
    return sum(int(np.sum(~((a == b) | ((a != a) & (b != b))))) for a, b in pairs)


class KeyRecorder(inv.AbstractKernel):
    """A kernel whose chains stand at the bits of the key that their last step was given."""

    target: inv.Target
    initial: None = None

    def draw(self, key):
        return jr.key_data(key).astype(float)

    def move(self, noise, state):
        yes, no = jnp.array(True), jnp.array(False)
        info = inv.Info(noise, jnp.zeros(()), yes, jnp.ones(()), no, no)
        return inv.State(noise, jnp.zeros(())), info


def keys_used_twice(chains, steps):
    """How many of the keys that `sample` hands to the steps of all chains were used before."""
    kernel = KeyRecorder(inv.Target(lambda x: -1e-30 * jnp.sum(x**2), 2))
    keys = run(kernel, num_chains=chains, num_samples=steps).positions.reshape(-1, 2)
    return len(keys) - len(np.unique(keys, axis=0))


def test_no_two_steps_share_a_key():
    assert keys_used_twice(chains=70, steps=50) == 0


@pytest.mark.deep
def test_many_chains_run_in_wide_blocks():
    """And draw what narrow ones draw, but for rounding."""
    wide = run(num_chains=1030, num_samples=3)
    narrow = run(num_chains=1030, num_samples=3, block=32)
    assert wide.provenance["block"] == 256 and narrow.provenance["block"] == 32
    assert thousand().provenance["block"] == 32
    np.testing.assert_allclose(wide.positions, narrow.positions, rtol=1e-9)


def test_each_of_several_processes_has_a_block(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    assert share_of(None, 64, None) == Share(range(16), None, 4, 16)
    assert share_of(None, 4096, None) == Share(range(1024), None, 4, 256)
    assert share_of(None, 4096, 32).block == 32
    with pytest.raises(inv.InputError, match=r"at most 3 processes$"):
        share_of(None, 3, None)


def test_chains_are_pairwise_distinct():
    draws = run(num_chains=70, num_samples=5)
    ends = draws.positions.reshape(70, -1)
    assert len(np.unique(ends, axis=0)) == 70
    increments = np.diff(draws.positions, axis=1).reshape(70, -1)
    moving = increments[np.abs(increments).max(1) > 0]
    assert len(np.unique(moving, axis=0)) == len(moving)


def test_a_shorter_run_is_the_beginning_of_a_longer_one():
    """Also where the longer one is cut into several chunks."""
    short, long = run(KERNEL, num_samples=37), run(KERNEL, num_samples=600)
    assert same(short.positions, long.positions[:, :37])
    assert same(short.acceptance_rate, long.acceptance_rate[:, :37])


def test_the_seed_decides():
    assert same(run(key=7).positions, run(key=jr.key(7)).positions)
    assert not same(run(key=7).positions, run(key=8).positions)


def test_thinning_keeps_every_kth_state():
    every, third = run(num_samples=60), run(num_samples=20, thin=3)
    assert same(third.positions, every.positions[:, 2::3])
    assert same(third.accepted, every.accepted[:, 2::3])
    mean_rate = every.acceptance_rate.reshape(4, 20, 3).mean(axis=2)
    np.testing.assert_allclose(third.acceptance_rate, mean_rate, rtol=1e-12)


@pytest.mark.deep
def test_warm_up_is_thrown_away():
    assert same(run(num_warmup=25).positions, run(num_samples=65).positions[:, 25:])
    assert same(
        run(num_warmup=25, num_samples=10, thin=2).positions,
        run(num_samples=45).positions[:, 26::2],
    )


def test_shapes_and_provenance():
    draws = run(num_warmup=3, thin=2)
    assert draws.positions.shape == (4, 40, 2) and draws.num_chains == 4
    assert draws.accepted.shape == draws.log_density.shape == (4, 40)
    assert draws.accepted.dtype == bool and draws.stopped.tolist() == [False] * 4
    expected = {"num_chains": 4, "num_samples": 40, "num_warmup": 3, "thin": 2, "key": [0, 0]}
    assert expected.items() <= draws.provenance.items()
    assert "4 chains × 40 draws of skewed" in repr(draws)
    np.testing.assert_allclose(
        draws.log_density, jax.vmap(jax.vmap(skewed(2).log_density))(draws.positions), rtol=1e-12
    )


def test_parameters_are_the_same_before_and_after():
    before = parameter_hash(KERNEL)
    draws = run(KERNEL)
    assert before == parameter_hash(KERNEL) == draws.provenance["kernel_hash"]
    assert before != parameter_hash(network_kernel().__class__(
        skewed(2), inv.paper_network(1, 2, 4), inv.standard_normal(4)
    ))  # fmt: skip


def test_one_compilation_serves_all_chunks_and_blocks():
    """The density is traced as often for twenty chunks of many chains as for one of few."""
    traces = []

    def log_density(x):
        traces.append(x.shape)
        return -0.5 * jnp.sum(x**2)

    kernel = inv.random_walk(inv.Target(log_density, 2), 1.0)
    run(kernel, num_samples=256)
    first = len(traces)
    run(kernel, num_samples=256, num_chains=100)
    again = len(traces) - first
    run(kernel, num_samples=3000, num_chains=100)
    assert len(traces) - first - again <= again <= 4 < first + 5


# ── starts ──────────────────────────────────────────────────────────────────────────────────────


def positive():
    """A density that lives where both coordinates are positive."""
    return inv.Target(
        lambda x: jnp.where(jnp.all(x > 0), -jnp.sum(x), -jnp.inf), 2, name="positive"
    )


def test_starts_are_the_given_ones():
    start = np.arange(8.0).reshape(4, 2) / 10
    draws = run(inv.random_walk(skewed(2), 1e-9), num_samples=1, initial=start)
    np.testing.assert_allclose(draws.positions[:, 0], start, atol=1e-7)


def test_a_start_without_density_is_an_error_that_names_the_chains():
    start = np.ones((6, 2))
    start[[1, 4], 0] = -1
    words = (
        r"must start at a finite log density, but 2 of 6 \(chains 1, 4\) start at -inf, -inf; "
        "pass initial= positions inside the support"
    )
    with pytest.raises(inv.InputError, match=words):
        run(inv.random_walk(positive(), 1.0), num_chains=6, initial=start)


def test_a_start_of_nan_or_infinite_density_is_an_error():
    for value in (jnp.nan, jnp.inf):
        target = inv.Target(lambda x, value=value: jnp.where(x[0] > 0, value, 0.0), 1)
        with pytest.raises(inv.InputError, match=rf"1 of 4 \(chains 2\) start at {value}"):
            run(inv.random_walk(target, 1.0), initial=[[-1.0], [-1.0], [1.0], [-1.0]])


def test_a_start_drawn_outside_the_support_is_drawn_again():
    kernel = inv.random_walk(positive(), 0.1)
    draws = run(kernel, num_chains=50, num_samples=5)
    assert (draws.positions > 0).all() and np.isfinite(draws.log_density).all()
    assert same(run(kernel, num_chains=3, num_samples=5).positions, draws.positions[:3])


def test_starts_that_are_never_inside_end_in_an_error():
    law = Uniform(jnp.full(2, -2.0), jnp.full(2, -1.0))
    with pytest.raises(inv.InputError, match=r"4 of 4 \(chains 0, 1, 2, 3\) start at -inf"):
        run(inv.random_walk(positive(), 1.0), initial=law)


def test_starts_come_from_the_given_law_then_the_kernels():
    near, far = Normal(jnp.full(2, 3.0), 1e-3), Normal(jnp.full(2, -3.0), 1e-3)
    kernel = inv.random_walk(skewed(2), 1e-6, initial=far)
    assert (run(kernel, num_samples=1).positions < -2).all()
    assert (run(kernel, num_samples=1, initial=near).positions > 2).all()


# ── Ctrl-C, and draws in a file ─────────────────────────────────────────────────────────────────


def interrupt_after(monkeypatch, calls):
    """Let Ctrl-C fall into the given call of `Chains.advance`, with its draws half written."""
    advance, count = Chains.advance, iter(range(1000))

    def interrupted(self, number, into=None):
        trace = advance(self, number, into)
        if next(count) == calls:
            trace.position[1:] = np.nan
            raise KeyboardInterrupt
        return trace

    monkeypatch.setattr(Chains, "advance", interrupted)


def test_ctrl_c_returns_what_was_drawn(monkeypatch):
    whole = run(num_samples=500)
    interrupt_after(monkeypatch, 3)
    part = run(num_samples=500)
    assert 0 < part.num_samples < 500 and part.provenance["interrupted"]
    assert same(part.positions, whole.positions[:, : part.num_samples])
    assert part.provenance["num_samples"] == part.num_samples
    assert not whole.provenance["interrupted"]


def test_ctrl_c_before_the_first_draw_says_so(monkeypatch):
    interrupt_after(monkeypatch, 0)
    with pytest.raises(inv.InputError, match="interrupted before the first chunk"):
        run()


def test_draws_go_to_a_folder_when_asked(tmp_path):
    stored, held = run(num_samples=300, store=str(tmp_path / "new")), run(num_samples=300)
    assert same(stored.positions, held.positions)
    files = {path.name for path in (tmp_path / "new").iterdir()}
    assert {"positions.npy", "log_density.npy", "accepted.npy"} <= files
    assert same(np.load(tmp_path / "new" / "positions.npy"), held.positions)
    assert isinstance(stored.positions.base, np.memmap) or isinstance(stored.positions, np.memmap)


# ── words for every bad input ───────────────────────────────────────────────────────────────────

BAD = {
    "no kernel": (lambda: run(3), "kernel must come from inv.learn or inv.Kernel, got int"),
    "a target": (lambda: run(skewed(2)), "got Target; pass inv.learn"),
    "no chains": (lambda: run(num_chains=0), "num_chains must be at least 1, got 0"),
    "no samples": (lambda: run(num_samples=0), "num_samples must be at least 1, got 0"),
    "half a sample": (lambda: run(num_samples=1.5), "num_samples must be a whole number, got 1.5"),
    "True samples": (lambda: run(num_samples=True), "num_samples must be a whole number"),
    "thin": (lambda: run(thin=0), "thin must be at least 1, got 0"),
    "warm-up": (lambda: run(num_warmup=-1), "num_warmup must be at least 0, got -1"),
    "block": (lambda: run(block=0), "block must be at least 1, got 0"),
    "no key": (lambda: run(key=None), "key must be an int seed or a JAX key, got None; pass key=0"),
    "a word as key": (lambda: run(key="zero"), "key must be an int seed or a JAX key, got str"),
    "many keys": (lambda: run(key=jr.split(jr.key(0), 2)), r"must be one key, got .* shape \(2,\)"),
    "a float key": (lambda: run(key=0.5), "key must be an int seed or a JAX key, got float"),
    "start of one chain": (
        lambda: run(initial=np.zeros(2)),
        r"initial must have shape \(chains, dim\) = \(4, 2\), got \(2,\)",
    ),
    "start of NaN": (lambda: run(initial=np.full((4, 2), np.nan)), "initial must be finite"),
    "a word as start": (
        lambda: run(initial="prior"),
        "initial must be positions or a distribution, got str",
    ),
}


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(("call", "words"), BAD.values(), ids=BAD)
def test_bad_input_is_named_before_any_work(call, words, monkeypatch):
    def work(*_):
        raise AssertionError("work began before the input was checked")

    monkeypatch.setattr(Chains, "advance", work)
    with pytest.raises(inv.InputError, match=words):
        call()


def test_written_out_bits_are_those_of_jax():
    """Also split, folded and of other widths; a key of another kind is left alone."""
    for make in (
        lambda k: jr.bits(k, (7,)),
        lambda k: jr.bits(k, (5,), "uint8"),
        lambda k: jr.key_data(jr.split(k, 3)),
        lambda k: jr.key_data(jr.fold_in(k, 12345)),
    ):
        keys = jr.split(jr.key(1), 3)
        assert jr.key_impl(unrolled(keys)) == UNROLLED
        assert same(jax.vmap(make)(unrolled(keys)), jax.vmap(make)(jr.split(jr.key(1), 3)))
    assert jr.key_impl(unrolled(jr.key(0, impl="rbg"))) == "rbg"


def test_normals_of_single_precision_are_pairs_of_the_two_words_of_a_hash():
    """By Box and Muller's formula in double precision; also where nothing is mapped."""
    with jax.enable_x64(False):
        keys = unrolled(jr.split(jr.key(1), 200))
        found = jax.vmap(lambda k: normal(k, 7))(keys)
        counters = [jnp.zeros(4, np.uint32), jnp.arange(4, dtype=np.uint32)]
        words = jax.vmap(lambda k: jnp.stack(_hash(jr.key_data(k), *counters)))(keys)
        alone = normal(keys[3], 7)
    a, b = np.moveaxis(np.asarray(words), 1, 0)
    radius = np.sqrt(-2 * np.log(((a >> 1) | 1) / 2.0**31))
    x = (b << np.uint32(2)).view(np.int32) * (np.pi / 2 / 2.0**32)
    near, across = np.where(b >> 31, -np.cos(x), np.cos(x)), np.sin(x)
    turned = (b >> 30) & 1 == 1
    pair = np.where(turned, across, near), np.where(turned, near, across)
    wanted = np.concatenate([radius * part for part in pair], axis=1)[:, :7]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, atol=2e-6, rtol=2e-6)
    np.testing.assert_allclose(alone, found[3], rtol=1e-6)


def test_normals_are_finite_at_the_ends_of_their_words():
    ends = np.array([0, 1, 2**29, 2**30, 2**31, 2**32 - 1], np.uint32)
    a, b = (jnp.asarray(words.ravel()) for words in np.meshgrid(ends, ends))
    found = np.asarray(_pair(a, b))
    radius = np.sqrt(-2 * np.log(np.float32(((np.asarray(a) >> 1) | 1) / 2.0**31)))
    np.testing.assert_allclose(np.abs(found), radius, atol=1e-3, rtol=1e-6)
    assert np.abs(found).max() == pytest.approx(6.5555, abs=1e-3) and np.abs(found).min() == 0


def test_normals_of_single_precision_are_normal_and_independent():
    with jax.enable_x64(False):
        keys = unrolled(jr.split(jr.key(2), 100_000))
        found = np.asarray(jax.jit(jax.vmap(lambda k: normal(k, 4)))(keys), float)
    assert kstest(found.ravel(), "norm").pvalue > 0.01
    for power in (1, 2):
        apart = np.corrcoef(found.T**power) - np.eye(4)
        assert np.abs(apart).max() < 4 / np.sqrt(len(found))
    beyond = np.array([(np.abs(found) > at).sum() for at in (2, 3, 4)])
    wanted = found.size * 2 * norm.sf([2, 3, 4])
    assert (np.abs(beyond - wanted) < 4 * np.sqrt(wanted)).all()


def test_normals_of_double_precision_are_those_of_jax():
    keys = jr.split(jr.key(1), 200)
    found = jax.vmap(lambda k: normal(k, 7))(unrolled(keys))
    np.testing.assert_allclose(found, jax.vmap(lambda k: jr.normal(k, (7,)))(keys), rtol=1e-12)


@pytest.mark.parametrize("dim", [1, 2, 7])
def test_everything_is_recorded_where_it_belongs(dim):
    flags = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1]], bool)
    row = Row(
        jnp.arange(5.0 * dim).reshape(5, dim), jnp.arange(5.0), flags[:, 0], -jnp.arange(5.0),
        *flags.T[1:],
    )  # fmt: skip
    trace = empty_trace(7, 2, dim, float)
    unpack(np.stack([packed(row)] * 2), trace, slice(1, 6))
    for found, wanted in zip(trace, row, strict=True):
        np.testing.assert_array_equal(found[1:6, 0], wanted)
        np.testing.assert_array_equal(found[1:6, 1], wanted)

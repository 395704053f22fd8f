"""BlackJAX both ways: our kernels as its algorithm, its algorithms as our local moves."""

import re
import subprocess
import sys
from pathlib import Path

import blackjax
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import involutive as inv
from involutive.interop import blackjax as bridge

# under vmap the checker counts a key in each branch that BlackJAX selects from
pytestmark = pytest.mark.usefixtures("foreign_keys")

MEAN = {"a": jnp.array([1.0, -1.0]), "b": jnp.array(2.0)}


def log_density(z):
    """`N(MEAN, diag(1, 1, 4))` of a dict."""
    return -0.5 * jnp.sum((z["a"] - MEAN["a"]) ** 2) - 0.125 * (z["b"] - MEAN["b"]) ** 2


def proposal(scale=1.5):
    """A walk of three coordinates; its own target is never used."""
    return inv.random_walk(inv.targets.gaussian(3), scale)


def start():
    return jax.tree.map(jnp.zeros_like, MEAN)


def test_is_of_the_librarys_own_type():
    assert isinstance(bridge.algorithm, blackjax.GenerateSamplingAPI)
    assert isinstance(bridge.algorithm(log_density, proposal()), blackjax.SamplingAlgorithm)


def test_run_inference_algorithm_drives_it(getkey):
    algorithm = bridge.algorithm(log_density, proposal())
    final, (states, info) = blackjax.util.run_inference_algorithm(
        getkey(), algorithm, 20_000, initial_position=start()
    )
    assert final.position.keys() == MEAN.keys()
    np.testing.assert_allclose(states.position["a"].mean(axis=0), MEAN["a"], atol=0.1)
    assert abs(states.position["b"].mean() - 2.0) < 0.2
    assert abs(states.position["b"].std() - 2.0) < 0.15
    assert 0.1 < info.is_accepted.mean() < 0.9
    np.testing.assert_allclose(
        states.logdensity[-3:],
        jax.vmap(log_density)(jax.tree.map(lambda x: x[-3:], states.position)),
    )


def test_runs_under_vmap(getkey):
    algorithm = bridge.algorithm(log_density, proposal())

    def chain(key):
        final, _ = blackjax.util.run_inference_algorithm(
            key, algorithm, 200, initial_position=start(), transform=lambda s, i: i.is_accepted
        )
        return final.position

    ends = jax.jit(jax.vmap(chain))(jr.split(getkey(), 2000))
    np.testing.assert_allclose(ends["a"].mean(axis=0), MEAN["a"], atol=0.1)
    assert abs(ends["b"].std() - 2.0) < 0.15


def test_same_step_as_our_own_kernel(getkey):
    """The bridge adds nothing: the same key makes the same step."""
    target = inv.Target(log_density, like=MEAN)
    kernel, key = inv.random_walk(target, 1.5), getkey()
    ours, info = kernel.step(jr.clone(key), kernel.init(start()))
    algorithm = bridge.algorithm(log_density, proposal())
    theirs, their_info = algorithm.step(jr.clone(key), algorithm.init(start()))
    np.testing.assert_array_equal(ours.position, target.flatten(theirs.position))
    assert info.accepted == their_info.is_accepted
    assert info.acceptance_rate == their_info.acceptance_rate


def test_inner_kernel_of_tempered_smc(getkey):
    """Prior N(0, 9 I), likelihood with modes at ±3: SMC with our inner kernel finds the moments."""

    def prior(x):
        return -0.5 * jnp.sum(x**2) / 9

    def likelihood(x):
        return jnp.logaddexp(-2 * (x[0] - 3) ** 2, -2 * (x[0] + 3) ** 2)

    smc = blackjax.adaptive_tempered_smc(
        prior,
        likelihood,
        bridge.algorithm.build_kernel(inv.random_walk(inv.targets.gaussian(2), 0.8)),
        bridge.algorithm.init,
        {},
        blackjax.smc.resampling.systematic,
        0.5,
        num_mcmc_steps=10,
    )
    key_start, key_run = jr.split(getkey())
    state = smc.init(3 * jr.normal(key_start, (2000, 2)))
    step = jax.jit(smc.step)
    for i in range(50):
        # a step moves particles at the temperature before and weighs them: the last begins at one
        last = state.tempering_param >= 1
        state, _ = step(jr.fold_in(key_run, i), state)
        if last:
            break
    assert state.tempering_param >= 1
    x = np.asarray(state.particles)
    # each mode is N(±3 · 36/37, 9/37): the product of N(±3, 1/4) and N(0, 9)
    np.testing.assert_allclose(np.abs(x[:, 0]).mean(), 3 * 36 / 37, atol=0.06)
    assert abs((x[:, 0] > 0).mean() - 0.5) < 0.08
    assert abs(x[:, 1].std() - 3.0) < 0.25


def test_a_kernel_of_another_dimension_is_refused():
    algorithm = bridge.algorithm(log_density, inv.random_walk(inv.targets.gaussian(2), 1.0))
    with pytest.raises(inv.InputError, match="must have the density's dimension, 3, got 2"):
        algorithm.step(jr.key(0), algorithm.init(start()))


def test_retarget_reaches_every_part():
    """Also the target inside a leapfrog inside a mixture."""
    old, new = inv.targets.gaussian(2), inv.targets.mog2()
    mixture = inv.Mixture([inv.hmc(old, 0.1, 3), inv.random_walk(old, 0.5)], [1, 1])
    moved = bridge.retarget(mixture, new)
    found = jax.tree.leaves(moved, is_leaf=lambda x: isinstance(x, inv.Target))
    names = {x.name for x in found if isinstance(x, inv.Target)}
    assert names == {"mog2"}
    assert moved.target.name == "mog2"


# ── Local moves ─────────────────────────────────────────────────────────────────────────────────

MOVES = {
    "nuts": (blackjax.nuts, {"step_size": 0.7, "inverse_mass_matrix": np.ones(3)}),
    "hmc": (
        blackjax.hmc,
        {"step_size": 0.5, "inverse_mass_matrix": np.ones(3), "num_integration_steps": 4},
    ),
    "mala": (blackjax.mala, {"step_size": 0.5}),
    "random walk": (
        blackjax.additive_step_random_walk,
        {"random_step": blackjax.mcmc.random_walk.normal(1.2 * np.ones(3))},
    ),
}


@pytest.mark.deep
@pytest.mark.parametrize(("algorithm", "parameters"), MOVES.values(), ids=MOVES)
def test_local_moves_keep_the_law_and_move(algorithm, parameters):
    """Exact draws in, a few steps, the same moments out; and most chains have moved."""
    target = inv.targets.correlated_gaussian(3, condition=4.0)
    move = bridge.as_kernel(target, algorithm, **parameters)
    begin = np.asarray(target.sample(jr.key(1), 4096))
    draws = inv.sample(move, key=2, num_chains=4096, num_samples=5, initial=begin, block=4096)
    end = draws.positions[:, -1]
    assert (end != begin).any(axis=1).mean() > 0.5
    np.testing.assert_allclose(end.mean(axis=0), 0.0, atol=0.12)
    np.testing.assert_allclose(np.cov(end.T), np.cov(begin.T), atol=0.3)
    moved = draws.positions[:, 1:] != draws.positions[:, :-1]
    np.testing.assert_array_equal(draws.accepted[:, 1:], moved.any(axis=2))
    density = jax.jit(jax.vmap(target.log_density))(jnp.asarray(end))
    np.testing.assert_allclose(draws.log_density[:, -1], density)


@pytest.mark.deep
def test_local_move_mixes_with_our_kernels():
    target = inv.targets.mog2()
    local = bridge.as_kernel(target, blackjax.mala, step_size=0.1)
    jump = inv.random_walk(target, np.array([8.0, 0.5]))
    for kernel in (inv.Mixture([local, jump], [0.5, 0.5]), inv.Cycle([local, jump])):
        draws = inv.sample(kernel, key=0, num_chains=32, num_samples=2000, num_warmup=100)
        assert abs((draws.positions[..., 0] > 0).mean() - 0.5) < 0.06


def test_a_stopped_chain_stays_stopped():
    target = inv.targets.gaussian(2)
    move = bridge.as_kernel(target, blackjax.mala, step_size=0.1)
    state = move.init(jnp.ones(2))._replace(log_density=jnp.array(jnp.inf))
    after, info = move.step(jr.key(0), state)
    np.testing.assert_array_equal(after.position, jnp.ones(2))
    assert after.log_density == jnp.inf and not info.accepted


@pytest.mark.parametrize(
    ("algorithm", "parameters", "words"),
    [
        (blackjax.mala(lambda x: -x @ x, 0.1), {}, "such as blackjax.nuts, got SamplingAlgorithm"),
        (blackjax.mala, {"stepsize": 0.1}, "must accept its parameters, but raised TypeError"),
    ],
)
def test_bad_local_moves_are_refused(algorithm, parameters, words, as_users_run):
    with pytest.raises(inv.InputError, match=words):
        bridge.as_kernel(inv.targets.gaussian(2), algorithm, **parameters)


WITHOUT = """
import importlib, pkgutil, sys
sys.modules["blackjax"] = None
import involutive
for module in pkgutil.walk_packages(involutive.__path__, "involutive."):
    name = module.name
    foreign = ("involutive.interop.", "involutive.bench.peers", "__main__")
    if not any(part in name for part in foreign):
        importlib.import_module(name)
assert callable(involutive.learn)
try:
    involutive.interop.blackjax
except involutive.InputError as error:
    print(error)
"""


def test_without_blackjax_all_else_imports_and_the_error_names_the_extra():
    found = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert "pip install 'involutive[blackjax]'" in found.stdout, found.stderr


def test_blackjax_is_imported_by_its_adapter_and_the_benchmark_alone():
    source = Path(inv.__file__).parent
    found = [
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if re.search(r"^\s*(import|from) blackjax", path.read_text(), re.MULTILINE)
    ]
    peers = {f"bench/peers/{name}.py" for name in ("hmc", "nss", "smc")}
    assert set(found) == {"interop/blackjax.py"} | peers

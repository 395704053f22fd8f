"""Rows 7 to 9, 15, 16 and 18 of the reliability table at full size: numbers, bits and words."""

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import pytest
import test_chains
import test_involutions
import test_kernel
import test_learn
from flowjax.distributions import StandardNormal

import involutive as inv
from involutive.cli import main as cli
from test_laws import apply, examine, relative
from zoo import ALL, INVOLUTIONS, LATTICE

deep = pytest.mark.deep

# ── Row 7: there and back ───────────────────────────────────────────────────────────────────────

STEEP = {"nested"}  # its spline has slopes of 1e-6 far out


@eqx.filter_jit
def _returns(f, z):
    """Whether a kernel with the guard lets each point move."""
    dim = f.size // 2
    kernel = inv.Kernel(inv.targets.gaussian(dim), f, StandardNormal((f.size - dim,)), guard=1e-9)

    def one(point):
        return kernel.propose(kernel.init(point[:dim]), point[dim:]).reversible

    return jax.vmap(one)(z)


@deep
@pytest.mark.row(7)
@pytest.mark.parametrize("name", INVOLUTIONS)
def test_a_hundred_thousand_points_return(name, record):
    """Out to ten standard deviations, in float64; what a steep spline loses, the guard rejects."""
    f = INVOLUTIONS[name](jr.key(3))
    z = 10 * jr.uniform(jr.key(1), (100_000, f.size), minval=-1.0)
    kept = z[np.asarray(_returns(f, z))]
    back, _ = apply(f, apply(f, kept)[0])
    error, failures = relative(back, kept), len(z) - len(kept)
    record(7, points=len(z), failures_rejected=failures, most_relative_error=error)
    assert error <= 1e-9
    assert failures <= (5e-3 * len(z) if name in STEEP else 0)


@deep
@pytest.mark.row(7)
@pytest.mark.parametrize("name", LATTICE)
def test_the_lattice_is_exact_as_users_compile_it(name, record):
    f = inv.lattice(LATTICE[name](jr.key(3)))
    z = f.snap(10 * jr.uniform(jr.key(2), (100_000, f.size), minval=-1.0))
    back, _ = apply(f, apply(f, z)[0])
    wrong = int((~(back == z).all(axis=1)).sum())
    record(7, lattice_points=len(z), lattice_points_wrong=wrong)
    assert wrong == 0


# ── Row 8: determinants ─────────────────────────────────────────────────────────────────────────


LARGE = {"paper-32", "lattice-paper"}  # 32 coordinates


@deep
@pytest.mark.row(8)
@pytest.mark.parametrize("name", [name for name in ALL if name not in LARGE])
def test_log_determinants_at_a_thousand_points(name, record):
    f, _, seen = examine(name, 1000)
    assert f.size <= 8
    error = np.abs(seen.log_det - np.linalg.slogdet(np.asarray(seen.jacobian))[1]).max()
    record(8, maps=1, most_error=float(error))
    assert error <= 1e-9


# ── Row 9: the matrix block ─────────────────────────────────────────────────────────────────────


@deep
@pytest.mark.row(9)
@pytest.mark.parametrize("size", [2, 3, 8, 32])
def test_the_angle_stays_acute(size, record):
    v, w = test_involutions.fuzzed(jr.key(size), 100_000, size)

    @jax.jit
    def cosines(v, w):
        def one(v, w):
            a, b = test_involutions.raw_matrix(v, w).directions()
            return a @ b

        return jax.vmap(one)(v, w)

    least = float(cosines(v, w).min())
    record(9, parameters=len(v), least_cosine=least)
    assert least >= 0.1


# ── Rows 15 and 18: chains ──────────────────────────────────────────────────────────────────────


@deep
@pytest.mark.row(15)
@pytest.mark.parametrize("chains", [1, 4, 64])
def test_chain_k_as_users_compile_it(chains, record):
    different = test_chains.other_bits(chains)
    record(15, chains_compared=chains, other_bits=different)
    assert different == 0


@deep
@pytest.mark.row(18)
def test_no_key_twice_and_no_chains_alike(record):
    paths = test_chains.thousand().positions.reshape(1000, -1)
    alike = 1000 - len(np.unique(paths, axis=0))
    twice = test_chains.keys_used_twice(chains=1000, steps=1000)
    record(18, chains=1000, alike=alike, keys_used_twice=twice)
    assert alike == 0 and twice == 0


# ── Row 16: bad input ───────────────────────────────────────────────────────────────────────────

CALLS = {
    **{f"sample: {name}": case for name, case in test_chains.BAD.items()},
    **{f"kernel: {name}": case for name, case in test_kernel.BAD.items()},
    **{
        f"learn: {name}": (lambda call=call: call(inv.targets.gaussian(2)), words)
        for name, (call, words) in test_learn.BAD.items()
    },
}
COMMANDS = [
    ["learn", "nowhere.py:target"], ["learn", "posterior.py"], ["sample", "nowhere.py:x", "p.inv"],
    ["sample", "nowhere.py:x"], ["report", "none.nc"], ["experiment", "nonsense"], ["experiment"],
    ["demo", "--seed", "-1"], ["demo", "--out", "no/where"], ["nonsense"],
]  # fmt: skip


@deep
@pytest.mark.row(16)
@pytest.mark.usefixtures("as_users_run")
def test_bad_input_is_named_before_the_first_step(record, monkeypatch):
    def work(*_):
        raise AssertionError("work began before the input was checked")

    monkeypatch.setattr(test_chains.Chains, "advance", work)
    for name, (call, words) in CALLS.items():
        with pytest.raises(inv.InputError, match=words) as caught:
            call()
        assert "\n" not in str(caught.value), name
    record(16, bad_inputs=len(CALLS))
    assert len(CALLS) >= 40


@deep
@pytest.mark.row(16)
@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_bad_command_is_one_line(arguments, record, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "set")
    assert cli.run(arguments) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and "Traceback" not in said.err + said.out
    record(16, bad_commands=1)


def test_there_are_enough_bad_inputs():
    assert len(CALLS) >= 40

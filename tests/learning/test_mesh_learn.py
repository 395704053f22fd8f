"""Learning over several devices: chains and training batches spread, one kernel out."""

import subprocess
import sys

import jax
import numpy as np
import pytest

import involutive as inv
from involutive.sampling.devices import batches_over, devices_here
from involutive.training.objective import minibatch

OVER_FOUR = """
import jax
jax.config.update("jax_num_cpu_devices", 4)
import involutive as inv
from involutive.diagnostics.metrics import mode_weights
from involutive.sampling.devices import batches_over, devices_here
from involutive.training.objective import minibatch

mesh = jax.make_mesh((4,), ("chains",), axis_types=(jax.sharding.AxisType.Auto,))
with batches_over(devices_here(mesh)):
    rows = jax.jit(lambda x, k: minibatch(x, k, 64))(jax.numpy.ones((100, 2)), jax.random.key(0))
print(len(rows.sharding.device_set), rows.addressable_shards[0].data.shape[0])
if {learn}:
    target, small = inv.targets.mog2_1d(), inv.Budget(evaluations=4e5)
    kernel = inv.learn(target, key=0, budget=small, mesh=mesh, progress=False)
    draws = inv.sample(kernel, key=1, num_chains=128, num_samples=250, mesh=mesh, progress=False)
    print(mode_weights(draws).total_variation, kernel.outcome.ess_per_draw)
"""


def run(learn: bool) -> list[str]:
    code = OVER_FOUR.replace("{learn}", str(learn))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()


@pytest.mark.deep
def test_batches_are_spread_over_four_devices():
    assert run(learn=False) == ["4 16"]


@pytest.mark.deep
def test_learning_over_four_devices_is_right():
    error, per_draw = map(float, run(learn=True)[1].split())
    assert error < 0.03
    assert per_draw > 0.3


def test_one_device_changes_nothing():
    mesh = jax.make_mesh((1,), ("chains",), axis_types=(jax.sharding.AxisType.Auto,))
    key = jax.random.key(0)
    plain = minibatch(jax.numpy.arange(20.0).reshape(10, 2), jax.random.clone(key), 4)
    with batches_over(devices_here(mesh)):
        found = minibatch(jax.numpy.arange(20.0).reshape(10, 2), key, 4)
    np.testing.assert_array_equal(plain, found)


@pytest.mark.usefixtures("as_users_run")
def test_a_mesh_must_be_a_mesh():
    with pytest.raises(inv.InputError, match=r"mesh must be a jax\.sharding\.Mesh, got int"):
        inv.learn(inv.targets.mog2_1d(), key=0, mesh=3)  # type: ignore[arg-type]

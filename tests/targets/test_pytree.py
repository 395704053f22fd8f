"""Positions of any shape, from a hand-written density to ArviZ."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import involutive as inv
from involutive.interop.arviz import group

LIKE = {"centre": jnp.zeros(2), "shape": {"tilt": jnp.zeros((2, 3)), "level": 0.0}}
MEAN = {"centre": 1.0, "shape.tilt": -1.0, "shape.level": 3.0}


def log_density(z):
    """Independent unit normals around different means."""
    parts = (z["centre"] - 1.0, z["shape"]["tilt"] + 1.0, z["shape"]["level"] - 3.0)
    return -0.5 * sum(jnp.sum(part**2) for part in parts)


def test_a_dict_goes_through_sample_to_arviz_by_name():
    target = inv.Target(
        log_density,
        like=LIKE,
        dims={"centre": ["axis"]},
        coords={"axis": ["x", "y"]},
    )
    assert target.dim == 2 + 6 + 1
    kernel = inv.hmc(target, 0.9, 3)
    draws = inv.sample(kernel, key=0, num_chains=16, num_samples=500, num_warmup=50)
    posterior = group(draws.to_arviz(), "posterior")
    assert {name: posterior[name].shape[2:] for name in posterior.data_vars} == {
        "centre": (2,),
        "shape.tilt": (2, 3),
        "shape.level": (),
    }
    assert posterior["centre"].dims == ("chain", "draw", "axis")
    assert list(posterior["centre"].coords["axis"].values) == ["x", "y"]
    for name, mean in MEAN.items():
        np.testing.assert_allclose(posterior[name].mean(("chain", "draw")), mean, atol=0.1)
        np.testing.assert_allclose(posterior[name].std(("chain", "draw")), 1.0, atol=0.1)


def test_a_chain_starts_at_a_position_of_that_shape():
    target = inv.Target(log_density, like=LIKE)
    start = {"centre": [1.0, 1.0], "shape": {"tilt": np.full((2, 3), -1.0), "level": 3}}
    state = inv.hmc(target, 0.9, 3).init({**start, "centre": jnp.ones(2)})
    assert state.position.shape == (9,)
    assert state.log_density == 0.0


def swapped(p):
    """zeta ~ N(3, 1) and alpha ~ N(-1, 0.1²), given in this order, which is not the alphabet's."""
    return -0.5 * (p["zeta"] - 3.0) ** 2 - 50.0 * (p["alpha"] + 1.0) ** 2


@pytest.mark.parametrize("constrain", [None, lambda p: {"zeta": p["zeta"], "alpha": p["alpha"]}])
def test_keys_keep_the_order_given_and_constrain_gets_what_the_density_gets(constrain):
    """JAX sorts keys: a `constrain` of the flat vector in the order written mislabelled both."""
    target = inv.Target(swapped, like={"zeta": 0.0, "alpha": 0.0}, constrain=constrain)
    assert target.flatten({"alpha": -1.0, "zeta": 3.0}).tolist() == [3.0, -1.0]
    assert list(target.restore(jnp.zeros(2))) == ["zeta", "alpha"]
    kernel = inv.hmc(target, 0.09, 5)
    start = np.tile([3.0, -1.0], (8, 1))
    draws = inv.sample(kernel, key=0, num_chains=8, num_samples=100, initial=start)
    table = draws.summary().table
    assert list(table.index)[:2] == ["zeta", "alpha"]
    assert abs(table["mean"]["alpha"] + 1.0) < 0.2 and table["sd"]["alpha"] < 0.3
    assert abs(table["mean"]["zeta"] - 3.0) < 1.0


def test_containers_inside_containers_keep_their_order():
    like = {"b": [{"z": 0.0, "a": np.zeros(2)}], "a": (1.0, {"y": 0.0, "x": 0.0})}
    target = inv.Target(lambda p: -jnp.sum(jnp.stack(jax.tree.leaves(ravelled(p)))), like=like)
    position = target.restore(jnp.arange(6.0))
    assert list(position) == ["b", "a"] and list(position["b"][0]) == ["z", "a"]
    assert position["b"][0]["a"].tolist() == [1, 2] and float(position["a"][1]["y"]) == 4
    assert list(target.constrain(jnp.arange(6.0))) == ["b.0.z", "b.0.a", "a.0", "a.1.y", "a.1.x"]
    assert target.coordinate(2) == "b.0.a[1]" and target.coordinate(5) == "a.1.x"
    back = target.flatten(jax.tree.map(lambda leaf: leaf, position))  # which sorts every dict
    assert back.tolist() == [0, 1, 2, 3, 4, 5]


def ravelled(position):
    return jax.tree.map(lambda leaf: jnp.sum(leaf**2), position)

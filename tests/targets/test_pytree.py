"""Positions of any shape, from a hand-written density to ArviZ."""

import jax.numpy as jnp
import numpy as np

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

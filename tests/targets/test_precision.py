"""32 bits: what they cannot resolve is said before work starts, and nothing else is."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import involutive as inv
from involutive.targets import precision
from involutive.targets.validation import check_density


@pytest.fixture
def single():
    """JAX as it is by default."""
    precision._TOLD.clear()
    with jax.enable_x64(False):
        yield


DATA = 1_000_000


def much_data(x):
    """The log likelihood of a million observations, up to what they sum to."""
    return -0.5 * DATA * jnp.sum((x - 3.0) ** 2) - 1.42 * DATA


def sharp(x):
    """As narrow, but zero at its maximum: 32 bits resolve it where chains go."""
    return -0.5 * DATA * jnp.sum((x - 3.0) ** 2)


@pytest.mark.usefixtures("single")
def test_much_data_in_32_bits_is_named_with_the_line_that_switches():
    target = inv.Target(much_data, dim=2)
    with pytest.warns(inv.PrecisionWarning, match="jax_enable_x64', True") as told:
        check_density(target)
    assert len(told) == 1 and "about -1.42e+06 near its maximum" in str(told[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_density(target)  # once


@pytest.mark.usefixtures("single")
@pytest.mark.parametrize("density", [sharp, lambda x: -jnp.sum(x**2), lambda x: -jnp.inf * x @ x])
def test_other_densities_are_not(density):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_density(inv.Target(density, dim=2))


def test_nor_is_anything_in_64_bits():
    check_density(inv.Target(much_data, dim=2))


def test_a_kernel_crosses_widths_without_a_word(tmp_path, single):
    target = inv.targets.gaussian(2)
    with jax.enable_x64(True):
        inv.save(tmp_path / "k.inv", inv.hmc(target, 0.5, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel = inv.load(tmp_path / "k.inv", target)
    draws = inv.sample(kernel, key=0, num_chains=2, num_samples=10)
    assert draws.positions.dtype == np.float32

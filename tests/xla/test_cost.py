"""Sizes of learning follow the work of one evaluation, counted from the density's program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import involutive as inv
from involutive._xla.batched import BatchedDensity
from involutive._xla.cost import affordable, much_work, operations
from involutive._xla.program import program_of
from involutive.bijections.whitening import whitening
from involutive.learning.fit.weighted import normal_around
from involutive.learning.settings import FitSettings, LearnSettings
from involutive.sampling.steps import advance_learned, advance_network, compiled_for


def normal(x):
    return -0.5 * jnp.sum(x**2)


def repeated(times):
    def log_density(x):
        return normal(jax.lax.fori_loop(0, times, lambda _, y: y + 0.01 * jnp.tanh(y), x))

    return log_density


def regression(rows):
    design = jnp.ones((rows, 4))
    return lambda x: normal(design @ x)


def through_python(x):
    shape = jax.ShapeDtypeStruct((), x.dtype)
    return jax.pure_callback(lambda y: -0.5 * (y**2).sum(), shape, x)


def unknown_length(x):
    grown = jax.lax.while_loop(lambda y: jnp.sum(y) < 10, lambda y: y + jnp.exp(y), x)
    return normal(grown)


def either(x):
    return jax.lax.cond(x[0] > 0, normal, repeated(50), x)


def work(log_density, dim=4):
    return operations(inv.Target(log_density, dim=dim).log_density, dim)


def test_a_loop_counts_as_often_as_it_runs():
    assert work(repeated(200)) == pytest.approx(10 * work(repeated(20)), rel=0.1)


def test_products_count_by_all_three_sizes():
    assert work(regression(5000)) == pytest.approx(10 * work(regression(500)), rel=0.05)
    assert work(regression(500)) > 2 * 500 * 4


def test_a_branch_counts_as_its_dearest():
    assert work(either) == pytest.approx(work(repeated(50)), rel=0.2)


def test_what_cannot_be_counted_is_taken_to_be_dear():
    assert work(through_python) >= 1e6
    assert work(unknown_length) > 10 * work(normal)


def test_sizes_shrink_for_dear_densities_only():
    assert affordable(100.0, 20_000.0) == 1.0
    assert affordable(200_000.0, 20_000.0) == pytest.approx(0.1)
    usual = LearnSettings()
    assert usual.scaled(1.0, 1.0) == usual
    small = usual.scaled(0.1, 0.5)
    assert small.climbers < usual.climbers / 5 and small.round_chains == usual.round_chains // 2
    assert usual.scaled(1e-9, 1e-9).climbers >= 64  # never so few that nothing is found


def test_much_work_counts_the_density_and_what_moves_it():
    little, data = program_of(normal, 4), program_of(regression(1000), 4)
    assert not much_work(little) and much_work(data)
    assert much_work(little, jnp.zeros((60, 60))) and not much_work(little, (jnp.zeros(9), 1.0))


def test_chains_of_much_work_are_compiled_to_run_fast():
    for log_density, moves in ((normal, advance_learned), (regression(1000), advance_network)):
        target = inv.Target(log_density, dim=4)
        points = np.random.default_rng(1).normal(size=(50, 4))
        law = normal_around(FitSettings(), points).distribution()
        g = whitening(np.random.default_rng(0).normal(size=(100, 4)))
        kernel = inv.Kernel(target, inv.FunctionBlock(g), law)
        assert compiled_for(kernel, program_of(log_density, 4)) is moves


def test_rows_of_much_work_have_the_values_and_slopes_of_the_density():
    log_density, points = regression(1000), np.eye(4, dtype=np.float32)
    values, slopes = BatchedDensity(log_density, 4).gradients(points)
    assert values == pytest.approx(-500 * np.ones(4), rel=1e-4)
    assert slopes == pytest.approx(-1000 * np.ones((4, 4)), rel=1e-4)

"""Blocks of one size serve any number of rows, whatever the program returns."""

import jax
import numpy as np
import pytest

from involutive._xla.batched import in_blocks


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 11])
def test_blocks_give_what_the_whole_gives_and_compile_once(count):
    rows = np.random.default_rng(0).normal(size=(count, 3)).astype(np.float32)
    shapes = []

    @jax.jit
    def program(block):
        shapes.append(block.shape)
        return {"double": 2 * block, "norm": (block[:, 0] ** 2,)}

    found = in_blocks(program, rows, 4)
    np.testing.assert_array_equal(found["double"], 2 * rows)
    np.testing.assert_array_equal(found["norm"][0], rows[:, 0] ** 2)
    assert shapes == [(4, 3)]

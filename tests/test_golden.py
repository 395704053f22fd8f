"""Draws at fixed seeds stay what they were, bit for bit, and files saved before still load.

`golden/draws.npz` and `golden/proposal.inv` were written by `python tests/test_golden.py` at commit
2091bfb, before the package was divided into rooms. They are written anew only when a change is
meant to change draws, and the commit says why.
"""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent / "golden"
NAMES = ("hmc", "random_walk", "a_nice_mc", "paper_network", "loaded")


def draws_of(name: str) -> np.ndarray:
    import jax.random as jr

    import involutive as inv

    target = inv.targets.mog2() if name == "loaded" else inv.targets.mog6()
    if name == "hmc":
        kernel = inv.hmc(target, 0.2, 5)
    elif name == "random_walk":
        kernel = inv.random_walk(target, 0.7)
    elif name == "a_nice_mc":
        from flowjax.bijections import Chain

        halves = [inv.additive_cascade(key, 4, blocks=2) for key in jr.split(jr.key(3))]
        kernel = inv.a_nice_mc(target, Chain(halves))
    elif name == "paper_network":
        network = inv.paper_network(jr.key(1), state_dim=2, aux_dim=30)
        kernel = inv.Kernel(target, network, inv.standard_normal(30))
    else:
        kernel = inv.load(FOLDER / "proposal.inv", target)
    return inv.sample(kernel, key=7, num_chains=40, num_samples=30, num_warmup=2).positions


@pytest.mark.parametrize("name", NAMES)
def test_draws_are_what_they_were(name: str) -> None:
    with np.load(FOLDER / "draws.npz") as golden:
        expected = golden[name]
    found = draws_of(name)
    assert found.dtype == expected.dtype
    assert (np.diff(found, axis=1) != 0).any()
    np.testing.assert_array_equal(found, expected)


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = (
        "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false"
    )
    import jax

    jax.config.update("jax_enable_x64", True)
    import involutive as inv

    if "--proposal" in sys.argv:
        kernel = inv.learn(inv.targets.mog2(), key=0, progress=False)
        inv.save(FOLDER / "proposal.inv", kernel)
    np.savez_compressed(FOLDER / "draws.npz", **{name: draws_of(name) for name in NAMES})

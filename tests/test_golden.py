"""Draws at fixed seeds stay what they were, bit for bit, and files saved before still load.

`golden/draws.npz` and `golden/proposal.inv` were written by `python tests/test_golden.py` at commit
2091bfb, before the package was divided into rooms. They are written anew only when a change is
meant to change draws, and the commit says why. Draws are made in a process of their own, which
compiles as the one that wrote them did: the suite compiles with less optimisation.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent / "golden"
NAMES = ("hmc", "random_walk", "a_nice_mc", "paper_network", "loaded")
FLAGS = "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false"


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


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, np.ndarray]:
    """Draws of every kernel, made now."""
    path = tmp_path_factory.mktemp("golden") / "draws.npz"
    environment = os.environ | {"XLA_FLAGS": FLAGS}
    subprocess.run([sys.executable, __file__, path], env=environment, check=True)
    return np.load(path)


@pytest.mark.parametrize("name", NAMES)
def test_draws_are_what_they_were(name: str, found: Mapping[str, np.ndarray]) -> None:
    with np.load(FOLDER / "draws.npz") as golden:
        expected = golden[name]
    assert found[name].dtype == expected.dtype
    assert (np.diff(found[name], axis=1) != 0).any()
    np.testing.assert_array_equal(found[name], expected)


def write(path: Path) -> None:
    """Write the draws of every kernel; with --proposal among the arguments, learn it anew first."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import involutive as inv

    if "--proposal" in sys.argv:
        kernel = inv.learn(inv.targets.mog2(), key=0, progress=False)
        inv.save(FOLDER / "proposal.inv", kernel)
    np.savez_compressed(path, **{name: draws_of(name) for name in NAMES})


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = FLAGS
    given = [Path(argument) for argument in sys.argv[1:] if not argument.startswith("-")]
    write(given[0] if given else FOLDER / "draws.npz")

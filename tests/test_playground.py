"""The playground of the docs: its JavaScript computes what this library does, on 1000 points."""

import json
import shutil
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import involutive as inv
from involutive.bijections.whitening import Whitening

STATIC = Path(__file__).parents[1] / "docs" / "_static"
NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="no Node on PATH: the playground was not run")

SCRIPT = """
const maths = require(process.argv[1] + "/playground.js");
const numbers = require(process.argv[1] + "/playground-numbers.js");
const given = JSON.parse(require("fs").readFileSync(0, "utf8"));
const seeded = (a) => () => { a = (a + 0x6d2b79f5) | 0;
  let t = Math.imul(a ^ (a >>> 15), 1 | a); t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296; };
let x = [5, 0]; const random = seeded(1), chain = [];
for (let i = 0; i < 20000; i++) { x = maths.step(numbers, x, random).x; chain.push(x); }
console.log(JSON.stringify({
  chain,
  moves: given.points.map((z) => maths.propose(numbers, z.slice(0, 2), z.slice(2))),
  maps: given.pairs.map(([v, w, sigma], i) =>
    maths.sandwich(sigma, v, w, given.points[i].slice(0, 2))),
}));
"""


@pytest.fixture(scope="module")
def numbers():
    text = (STATIC / "playground-numbers.js").read_text()
    return json.loads(text[text.index("{") : text.rindex("};") + 1])


@pytest.fixture(scope="module")
def given():
    rng = np.random.default_rng(0)
    points = rng.normal(scale=[4.0, 4.0, 1.3, 1.3], size=(1000, 4))
    turns = rng.uniform(0, np.pi, size=(1000, 2))
    turns[:, 1] = turns[:, 0] + rng.uniform(-1.2, 1.2, 1000)  # v and w not orthogonal
    unit = np.stack([np.cos(turns), np.sin(turns)], axis=2)
    swaps = rng.integers(0, 2, 1000)
    pairs = [[*u.tolist(), [int(s), int(1 - s)]] for u, s in zip(unit, swaps, strict=True)]
    return {"points": points.tolist(), "pairs": pairs}


@pytest.fixture(scope="module")
def computed(given):
    command = [str(NODE), "-e", SCRIPT, str(STATIC)]
    ran = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_proposals_and_ratios_are_those_of_the_kernel(numbers, given, computed):
    factors = np.asarray(numbers["mixture"]["factors"])
    covariances = np.linalg.inv(np.swapaxes(factors, 1, 2) @ factors)
    law = inv.GaussianMixture(
        jnp.asarray(numbers["mixture"]["weights"]),
        jnp.asarray(numbers["mixture"]["means"]),
        jnp.asarray(covariances),
    )
    white = numbers["whitening"]
    g = Whitening(jnp.asarray(white["mean"]), jnp.asarray(white["factor"]))
    kernel = inv.Kernel(inv.targets.mog6(), inv.FunctionBlock(g), law)
    z = jnp.asarray(given["points"])
    move = jax.jit(jax.vmap(lambda z: kernel.propose(kernel.init(z[:2]), z[2:])))(z)
    for name, wanted in (
        ("position", move.state.position),
        ("auxiliary", move.auxiliary),
        ("logRatio", move.log_ratio),
    ):
        got = np.array([row[name] for row in computed["moves"]])
        np.testing.assert_allclose(got, np.asarray(wanted), rtol=1e-8, atol=1e-8)


def test_the_sandwich_is_that_of_the_blocks(given, computed):
    def block(v, w, sigma, z):
        return inv.Sandwich(inv.PermutationBlock(sigma), inv.MatrixBlock(v, w))(jnp.asarray(z))[0]

    for k in range(0, 1000, 100):  # one block each: PermutationBlock checks its indices
        v, w, sigma = given["pairs"][k]
        wanted = block(v, w, sigma, given["points"][k][:2])
        np.testing.assert_allclose(computed["maps"][k], wanted, rtol=1e-9, atol=1e-9)
    v, w, sigma = (np.array([pair[i] for pair in given["pairs"]]) for i in range(3))
    z = np.array(given["points"])[:, :2]
    swapped = np.take_along_axis(z, sigma, axis=1)
    share = 2 * np.sum(w * swapped, axis=1) / np.sum(v * w, axis=1)
    wanted = np.take_along_axis(swapped - share[:, None] * v, sigma, axis=1)
    np.testing.assert_allclose(np.array(computed["maps"]), wanted, rtol=1e-9, atol=1e-9)


def test_a_chain_in_the_browser_finds_the_weights(computed):
    chain = np.array(computed["chain"])
    label = jax.vmap(inv.targets.mog6().modes.label)(jnp.asarray(chain))
    share = np.bincount(np.asarray(label), minlength=6) / len(chain)
    assert np.abs(share - 1 / 6).max() < 0.02  # six standard errors of 20 000 draws

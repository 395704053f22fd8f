"""A type checker in its strict mode accepts a user's script and refuses wrong arguments."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

GOOD = """
import jax.numpy as jnp
from jax import Array
import involutive as inv

def log_density(x: Array) -> Array:
    return -0.5 * jnp.sum(x**2)

target = inv.Target(log_density, dim=2)
network = inv.paper_network(0, state_dim=2, aux_dim=2)
kernel = inv.Mixture(
    [inv.hmc(target, 0.1, 5), inv.Kernel(target, network, inv.standard_normal(2))], [1, 2]
)
draws = inv.sample(kernel, key=1, initial=[[0.0, 0.0]] * 64)
inv.save("proposal.inv", kernel)
converged: bool = inv.load("proposal.inv", target).outcome.converged
weights = inv.load("proposal.inv", target, inv.Mixture).probabilities
print(draws.positions.shape, draws.summary(), weights, converged)
"""

BAD = [
    'inv.sample("kernel", key=0)',
    "inv.sample(kernel, key=0, num_chain=4)",
    "inv.sample(kernel, key=None)",
    "inv.sample(kernel, key=0, until=1000)",
    'inv.hmc(target, step_size=0.1, num_steps="five")',
    "inv.random_walk(kernel, 0.5)",
    "inv.Kernel(target, inv.standard_normal(2), inv.standard_normal(2))",
    "inv.Mixture([target], [1.0])",
    'inv.MatrixBlock({"v": 1.0}, [1.0])',
    'inv.save(kernel, "proposal.inv")',
    'inv.load("proposal.inv", target).outcom',
    'inv.learn(target, key=0, strategy="magic")',
    "inv.lern(target, key=0)",
]


def readme() -> str:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.S | re.M)
    return "\n".join(blocks)


@pytest.fixture(scope="module")
def errors(tmp_path_factory) -> dict[str, list[tuple[int, str]]]:
    """Line and message of every error of the scripts, from one run of pyright."""
    folder = tmp_path_factory.mktemp("scripts")
    head = "import involutive as inv\ntarget = inv.targets.mog6()\nkernel = inv.hmc(target, 0.1, 5)"
    scripts = {"readme": readme(), "good": GOOD, "bad": "\n".join([head, *BAD])}
    for name, text in scripts.items():
        (folder / f"{name}.py").write_text(text)
    options = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT / "src")]}
    (folder / "pyrightconfig.json").write_text(json.dumps(options))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    ran = subprocess.run([*command, "-p", str(folder)], capture_output=True, text=True)
    found: dict[str, list[tuple[int, str]]] = {name: [] for name in scripts}
    for row in json.loads(ran.stdout)["generalDiagnostics"]:
        if row["severity"] == "error":
            line = row["range"]["start"]["line"]
            found[Path(row["file"]).stem].append((line, row["message"]))
    return found


@pytest.mark.parametrize("script", ["readme", "good"])
def test_a_users_script_passes_in_strict_mode(errors, script):
    assert errors[script] == []


@pytest.mark.parametrize("number", range(len(BAD)), ids=BAD)
def test_a_wrong_argument_fails(errors, number):
    assert number + 3 in {line for line, _ in errors["bad"]}

"""Bootstrap: the paper's network trained on its own draws of mog6, without posterior samples.

Chains of HMC from X make the first draws. The network is trained on them by `MganConfig.mixing`,
chains that mix it with HMC make the next ones, and so on; the objective, its critic and its rate go
on from round to round. A bootstrap learns what its chains have found, and with the weights they
found it: what the chains of HMC got wrong, later rounds must mend.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from involutive import targets
from involutive.core.types import Figure
from involutive.experiments.measures import from_start, labels, single_precision, stationary
from involutive.experiments.members import OURS, first_law, kernel_of, objective_of
from involutive.plotting.panels import panels, style
from involutive.training.bootstrap import BootstrapConfig, bootstrap, local_hmc
from involutive.training.fit import TrainConfig

SCALE = 4.0  # width of mog6, roughly: nothing may be taken from exact draws here


@dataclass(frozen=True)
class Config:
    """Rounds, generator steps per round, and the chains that refresh the draws."""

    seed: int = 0
    rounds: int = 10
    steps: int = 4000
    chains: int = 64
    refreshed: int = 500
    burn_in: int = 100
    draws: int = 1000
    walk: int = 10

    @staticmethod
    def quick() -> "Config":
        """Three short rounds."""
        return Config(rounds=3, steps=700, refreshed=200, draws=300)


def run(config: Config) -> dict[str, Any]:
    """Return the metrics of every round, and of the last kernel beside the HMC it began with."""
    with single_precision():
        keys = jr.split(jr.key(config.seed), 6)
        key_network, key_hmc, key_train, key_run, key_walk, key_local = keys
        target = targets.mog6()
        kernel = kernel_of(OURS, target, key_network, SCALE)
        first = local_hmc(target, key_hmc, first_law())
        length = TrainConfig(config.steps, config.steps, None, keep="last")
        schedule = BootstrapConfig(
            config.rounds, length, config.chains, config.refreshed, config.burn_in
        )
        objective = objective_of(OURS, config.rounds * config.steps, SCALE)
        made = bootstrap(kernel, objective, key=key_train, first=first, config=schedule)
        last = [row for row in made.fit.history if row["step"] > 0]
        found = labels(target, np.asarray(jnp.asarray(made.samples)))
        walk = from_start(made.kernel, first_law(), key_walk, 4096, config.walk)
        walk.pop("positions")
        columns = {
            name: np.array([row[name] for row in last])
            for name in ("round", "refresh_acceptance", "acceptance_from_X", "ess")
        }
        trained = stationary(made.kernel, key_run, config.draws)
        local = stationary(first, key_local, config.draws)
    return (
        {f"round {name}": value for name, value in columns.items()}
        | {"share": np.bincount(found, minlength=6) / found.size}
        | {f"trained {name}": value for name, value in trained.items()}
        | {f"local {name}": value for name, value in local.items()}
        | walk
    )


def table(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The trained kernel, and the HMC that made the first draws."""
    rows = []
    for name, label in (("trained", "bootstrapped network"), ("local", "HMC that made the start")):
        rows.append(
            {
                "sampler": label,
                "ESS per draw": float(data[f"{name} ess"]),
                "stationary acceptance": float(data[f"{name} stationary_acceptance"]),
                "|autocorrelation| at lag 10": float(data[f"{name} autocorrelation"][1]),
                "a mode's weight off by": float(data[f"{name} weights"]),
            }
        )
    rows[0] |= {
        "last training draws: a mode's weight off by": float(np.abs(data["share"] - 1 / 6).max()),
        "first acceptance from X": float(data["acceptance"][0]),
        "energy distance / floor, last step": float(data["energy"][-1] / data["energy_floor"]),
    }
    return rows


def claims(data: dict[str, Any]) -> dict[str, bool]:
    """That a bootstrap learns to mix from chains that do not."""
    return {
        "more effective draws per draw than the HMC it began with": bool(
            data["trained ess"] > 2 * data["local ess"]
        ),
        "its own draws hold every mode": bool((data["share"] > 0.01).all()),
    }


def draw(data: dict[str, Any]) -> dict[str, Figure]:
    """Acceptance and the estimate of effective draws by round, and the energy distance from X."""
    figure, ((left, right),) = panels(1, 2, (9.0, 3.4))
    rounds = data["round round"] + 1
    for i, (name, label) in enumerate(
        {
            "refresh_acceptance": "acceptance while refreshing",
            "ess": "lag-one estimate of ESS",
        }.items()
    ):
        left.plot(rounds, data[f"round {name}"], label=label, **style(i))
    left.set(xlabel="round", ylim=(0, 1.02))
    left.legend(fontsize=8)
    right.plot(np.arange(data["energy"].size), data["energy"], **style(0))
    right.axhline(float(data["energy_floor"]), color="#666666", linewidth=0.8)
    right.set(xlabel="steps from X", ylabel="energy distance (line: exact draws)", yscale="log")
    return {"bootstrapped": figure}

"""Random walk, HMC and A-NICE-MC are involutions (Section 2): the same moves, number for number.

Each sampler runs twice on mog6 with the same random numbers: as an involution in this library's
kernel, and in its classical form written out below in NumPy, which shares no code with it. The two
trajectories agree to rounding, and each involution undoes itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from involutive import targets
from involutive.auxiliary import drawn
from involutive.bijections.couplings import AdditiveCoupling, mlp
from involutive.core.types import Figure
from involutive.kernel.classical import a_nice_mc, a_nice_network, hmc, random_walk
from involutive.kernel.kernel import Kernel, State
from involutive.plotting.panels import panels, style

NAMES = ("random walk", "HMC", "A-NICE-MC")
# (position, auxiliary) -> (proposal, log acceptance ratio), for many chains at once
Move = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Config:
    """Sizes of the samplers and of the run."""

    seed: int = 0
    chains: int = 8
    steps: int = 1000
    scale: float = 0.4
    step_size: float = 0.3
    leaps: int = 8
    width: int = 64

    @staticmethod
    def quick() -> "Config":
        """The same for 200 steps."""
        return Config(steps=200)


def run(config: Config) -> dict[str, Any]:
    """Return both trajectories of every family, in float64."""
    with jax.enable_x64(True):
        key_network, key_start, key_run = jr.split(jr.key(config.seed), 3)
        target = targets.mog6()
        # starting close to the identity keeps an untrained network's acceptance above zero
        network = a_nice_network(key_network, 2, make=mlp(config.width, last_scale=0.3))
        kernels = (
            random_walk(target, config.scale),
            hmc(target, config.step_size, config.leaps),
            a_nice_mc(target, network),
        )
        moves = (
            classical_walk(config.scale),
            classical_hmc(config.step_size, config.leaps),
            classical_a_nice([_weights(part) for part in network.bijections]),  # type: ignore[arg-type]
        )
        start = target.sample(key_start, config.chains)  # type: ignore[misc]
        # raw bits, because the same random numbers are used again on purpose
        bits = jr.key_data(jr.split(key_run, (config.steps, config.chains)))
        results = [_both(k, m, start, bits) for k, m in zip(kernels, moves, strict=True)]
    return {name: np.stack([r[name] for r in results]) for name in results[0]}


def _both(kernel: Kernel, move: Move, start: Array, bits: Array) -> dict[str, np.ndarray]:
    positions, accepted, back = map(np.asarray, _as_involution(kernel, start, bits))
    auxiliary, exponential = map(np.asarray, _random_numbers(kernel, bits))
    classical, taken = as_classical(move, np.asarray(start), auxiliary, exponential)
    return {
        "involution": positions,
        "classical": classical,
        "accepted": accepted,
        "classical_accepted": taken,
        "round_trip": back,
    }


@eqx.filter_jit
def _as_involution(kernel: Kernel, start: Array, bits: Array) -> tuple[Array, Array, Array]:
    def move(state: State, keys: Array) -> tuple[State, tuple[Array, Array]]:
        state, info = jax.vmap(kernel.step)(keys, state)
        return state, (state.position, info.accepted)

    def off(x: Array, key: Array) -> Array:
        z = jnp.concatenate([x, drawn(kernel.auxiliary, key)])
        return jnp.max(jnp.abs(kernel.involution(kernel.involution(z)[0])[0] - z))

    start_state, keys = jax.vmap(kernel.init)(start), jr.wrap_key_data(bits)
    _, (positions, accepted) = jax.lax.scan(move, start_state, keys)
    fresh = jax.vmap(lambda key: jr.fold_in(key, 1))(jr.wrap_key_data(bits[0]))
    return positions, accepted, jnp.max(jax.vmap(off)(start, fresh))


@eqx.filter_jit
def _random_numbers(kernel: Kernel, bits: Array) -> tuple[Array, Array]:
    """The auxiliary variables and exponential variates that `Kernel.step` draws from its keys."""

    def one(key: Array) -> tuple[Array, Array]:
        key_auxiliary, key_accept = jr.split(key)
        return drawn(kernel.auxiliary, key_auxiliary), jr.exponential(key_accept)

    return jax.vmap(jax.vmap(one))(jr.wrap_key_data(bits))


# ── The classical forms, in NumPy ───────────────────────────────────────────────────────────────

_CENTRES = 5 * np.array([[np.cos(a), np.sin(a)] for a in np.pi / 3 * np.arange(6)])


def as_classical(
    move: Move, x: np.ndarray, auxiliary: np.ndarray, exponential: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Metropolis-Hastings: accept where `log u = -exponential` is below the log ratio."""
    positions, accepted = [], []
    for v, e in zip(auxiliary, exponential, strict=True):
        proposal, log_ratio = move(x, v)
        taken = -e < log_ratio
        x = np.where(taken[:, None], proposal, x)
        positions.append(x)
        accepted.append(taken)
    return np.array(positions), np.array(accepted)


def log_mog6(x: np.ndarray) -> np.ndarray:
    """Log density of mog6, apart from a constant."""
    heights = -2 * ((x[:, None] - _CENTRES[None]) ** 2).sum(-1)
    top = heights.max(-1)
    return top + np.log(np.exp(heights - top[:, None]).sum(-1))


def slope_mog6(x: np.ndarray) -> np.ndarray:
    """Gradient of `log_mog6`."""
    apart = _CENTRES[None] - x[:, None]
    heights = -2 * (apart**2).sum(-1)
    shares = np.exp(heights - heights.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    return 4 * (shares[..., None] * apart).sum(1)


def classical_walk(scale: float) -> Move:
    """Propose x + s·v; the proposal is symmetric, so densities alone decide."""

    def move(x: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        proposal = x + scale * v
        return proposal, log_mog6(proposal) - log_mog6(x)

    return move


def classical_hmc(step_size: float, leaps: int) -> Move:
    """Textbook leapfrog: half kick, full kicks between drifts, half kick; compare energies."""

    def move(x: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        q, p = x.copy(), v + 0.5 * step_size * slope_mog6(x)
        for i in range(leaps):
            q = q + step_size * p
            if i < leaps - 1:
                p = p + step_size * slope_mog6(q)
        p = p + 0.5 * step_size * slope_mog6(q)
        before = 0.5 * (v**2).sum(-1) - log_mog6(x)
        after = 0.5 * (p**2).sum(-1) - log_mog6(q)
        return q, before - after

    return move


def classical_a_nice(nets: list[tuple[np.ndarray, ...]]) -> Move:
    """Toss a coin: apply the network or its inverse to (x, v); the last auxiliary is the coin."""
    first, second, third = (lambda y, w=w: _dense(w, y) for w in nets)

    def move(x: np.ndarray, auxiliary: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        v, ahead = auxiliary[:, :-1], auxiliary[:, -1:] > 0
        v_ahead = v + first(x)
        x_ahead = x + second(v_ahead)
        v_ahead = v_ahead + third(x_ahead)
        v_back = v - third(x)
        x_back = x - second(v_back)
        v_back = v_back - first(x_back)
        proposal, v_new = np.where(ahead, x_ahead, x_back), np.where(ahead, v_ahead, v_back)
        kinetic = 0.5 * (v**2).sum(-1) - 0.5 * (v_new**2).sum(-1)
        return proposal, log_mog6(proposal) - log_mog6(x) + kinetic

    return move


def _weights(coupling: AdditiveCoupling) -> tuple[np.ndarray, ...]:
    hidden, last = coupling.net.layers
    return tuple(np.asarray(a) for a in (hidden.weight, hidden.bias, last.weight, last.bias))


def _dense(weights: tuple[np.ndarray, ...], y: np.ndarray) -> np.ndarray:
    inner, bias, outer, offset = weights
    return np.maximum(y @ inner.T + bias, 0.0) @ outer.T + offset


# ── What it says ────────────────────────────────────────────────────────────────────────────────


def table(data: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per family: the largest difference, decisions that differ, acceptance, round trip."""
    differ = data["accepted"] != data["classical_accepted"]
    return [
        {
            "sampler": name,
            "largest difference of positions": float(
                np.abs(data["involution"][i] - data["classical"][i]).max()
            ),
            "decisions that differ": int(differ[i].sum()),
            "steps": int(data["accepted"][i].size),
            "acceptance": float(data["accepted"][i].mean()),
            "largest |f(f(z)) - z|": float(data["round_trip"][i]),
        }
        for i, name in enumerate(NAMES)
    ]


def claims(data: dict[str, Any]) -> dict[str, bool]:
    """Each family equals its classical form, and moves."""
    result = {}
    for row in table(data):
        same = row["largest difference of positions"] < 1e-9 and row["decisions that differ"] == 0
        result[f"{row['sampler']} as an involution equals its classical form"] = same
        # two runs that never move would agree as well
        result[f"{row['sampler']} accepts and rejects"] = 0.02 < row["acceptance"] < 0.999
        result[f"{row['sampler']} is its own inverse"] = row["largest |f(f(z)) - z|"] < 1e-9
    return result


def draw(data: dict[str, Any]) -> dict[str, Figure]:
    """The first coordinate of one chain of each family: involution as a line, classical as dots."""
    figure, axes = panels(3, 1, (8.0, 6.0), sharex=True)
    shown = 120
    for i, (name, axis) in enumerate(zip(NAMES, axes[:, 0], strict=True)):
        steps = np.arange(1, shown + 1)
        axis.plot(steps, data["involution"][i][:shown, 0, 0], label="as an involution",
                  **style(0, marker=""))  # fmt: skip
        axis.plot(steps, data["classical"][i][:shown, 0, 0], label="classical form",
                  **style(1, linestyle=""))  # fmt: skip
        axis.set(ylabel="x", title=name)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    axes[-1, 0].set_xlabel("steps")
    return {"families": figure}

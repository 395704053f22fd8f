"""The exact-conditional estimator: variance and bias against sampled accept bits (Section 5).

One estimate of the generator's loss `-E_{χᵇ}[D]` averages `batch` rollouts from X. Four estimators
are repeated many times with the same starts and auxiliaries:

    chi     accept bits summed out by the χ recursion: the paper's estimator
    bits    accept bits sampled on the same rollouts, score-function gradient: as chi in the mean
    path    the same value, but only the gradient that flows through the states: biased
    fresh   a chain as it is really run, with a fresh π after a rejection: unbiased for the
            objective, and so the yardstick of chi's bias

The variance of a gradient is summed over all parameters of the network.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import Normal
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key

from involutive.auxiliary import standard_normal
from involutive.core.errors import check_count
from involutive.core.types import Figure
from involutive.experiments.measures import exact, single_precision
from involutive.involutions.architectures import paper_network
from involutive.kernel.kernel import Kernel, State
from involutive.plotting.panels import log_axis, panels, style
from involutive.targets.benchmarks import mog6
from involutive.training.fit import TrainConfig, fit
from involutive.training.mgan.config import MganConfig
from involutive.training.mgan.critics import Critic
from involutive.training.mgan.objective import Mgan, MganMemory
from involutive.training.mgan.rollouts import (
    NEVER,
    Rollout,
    expectation,
    log_chi,
    log_reject,
    rollout,
    sampled_expectation,
)
from involutive.training.objective import split_kernel

ESTIMATORS = ("chi", "bits", "path", "fresh")
LABELS = {
    "chi": "chi: accept bits summed out",
    "bits": "bits: sampled, score-function gradient",
    "path": "path: sampled, gradient through states only",
    "fresh": "fresh: as chains are run, a new π each step",
}


@dataclass(frozen=True)
class Config:
    """Where the estimators are compared, and how often they are repeated.

    Attributes:
        depths: the values of b.
        repetitions: estimates of each kind for each b.
        batch: rollouts an estimate averages.
        train_steps: generator steps of the tuned recipe before the comparison; its critic is D.
            0 compares at the start, with an untrained critic.
        seed: of everything.
    """

    depths: tuple[int, ...] = (1, 2, 4, 8)
    repetitions: int = 1000
    batch: int = 32
    train_steps: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("repetitions", self.repetitions, least=2)
        check_count("batch", self.batch)
        check_count("train_steps", self.train_steps, least=0)

    @staticmethod
    def quick() -> "Config":
        """Seconds instead of minutes."""
        return Config(depths=(2,), repetitions=100, batch=16, train_steps=0)


def run(config: Config) -> dict[str, Any]:
    """Return, for each depth and estimator, means and variances of the loss and its gradient."""
    with single_precision():
        return _run(config)


def _run(config: Config) -> dict[str, Any]:
    key_train, key_compare = jr.split(jr.key(config.seed))
    kernel, critic = _trained(config, key_train)
    shape = (len(config.depths), len(ESTIMATORS))
    names = ("loss", "loss_variance", "gradient_variance", "gradient_bias", "gradient_noise")
    data: dict[str, Any] = {name: np.zeros(shape) for name in names}
    data["acceptance"] = np.zeros(len(config.depths))
    data["gradient_size"] = np.zeros(len(config.depths))
    for i, depth in enumerate(config.depths):
        key_depth = jr.fold_in(key_compare, depth)
        losses, mean, square, rate = jax.tree.map(
            np.asarray, _repeat(kernel, critic, key_depth, depth, config.batch, config.repetitions)
        )
        spread = np.maximum(square - mean**2, 0).sum(axis=1)
        noise = spread / config.repetitions
        apart = ((mean - mean[-1:]) ** 2).sum(axis=1)
        data["loss"][i], data["loss_variance"][i] = losses.mean(axis=0), losses.var(axis=0, ddof=1)
        data["gradient_variance"][i] = spread
        # the squared distance of two noisy means exceeds that of their limits by both noises
        data["gradient_bias"][i] = np.sqrt(np.maximum(apart - noise - noise[-1], 0))
        data["gradient_noise"][i] = np.sqrt(noise + noise[-1])
        data["gradient_size"][i] = np.sqrt(max((mean[0] ** 2).sum() - noise[0], 0))
        data["acceptance"][i] = rate.mean()
    data["gradient_bias"][:, -1] = 0.0
    return data | {"depths": np.array(config.depths), "repetitions": config.repetitions}


def table(data: dict[str, Any]) -> list[dict[str, Any]]:
    """One row for each depth and estimator."""
    rows = []
    for i, depth in enumerate(data["depths"]):
        for j, name in enumerate(ESTIMATORS):
            both = data["loss_variance"][i, j] + data["loss_variance"][i, -1]
            rows.append(
                {
                    "b": int(depth),
                    "estimator": name,
                    "acceptance": data["acceptance"][i],
                    "loss": data["loss"][i, j],
                    "loss bias": data["loss"][i, j] - data["loss"][i, -1],
                    "± error": np.sqrt(both / data["repetitions"]),
                    "loss variance": data["loss_variance"][i, j],
                    "gradient variance": data["gradient_variance"][i, j],
                    "gradient bias": data["gradient_bias"][i, j],
                    "gradient noise": data["gradient_noise"][i, j],
                    "gradient size": data["gradient_size"][i],
                }
            )
    return rows


def claims(data: dict[str, Any]) -> dict[str, bool]:
    """What the paper says of its estimator, tested."""
    loss, gradient = data["loss_variance"], data["gradient_variance"]
    return {
        "the loss varies less than with sampled accept bits, at every b": bool(
            (loss[:, 0] < loss[:, 1]).all()
        ),
        "its gradient varies less than with sampled accept bits, at every b": bool(
            (gradient[:, 0] < gradient[:, 1]).all()
        ),
    }


def draw(data: dict[str, Any]) -> dict[str, Figure]:
    """Variances against b, on a log scale."""
    figure, ((loss, gradient),) = panels(1, 2, (9.0, 3.6))
    for axis, name in ((loss, "loss_variance"), (gradient, "gradient_variance")):
        for j, estimator in enumerate(ESTIMATORS):
            axis.plot(data["depths"], data[name][:, j], label=LABELS[estimator], **style(j))
        log_axis(axis, data["depths"])
        axis.set(xlabel="steps b", yscale="log")
    loss.set(ylabel="variance of one estimate", title="loss")
    gradient.set(title="gradient, summed over parameters")
    figure.legend(*loss.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return {"estimator": figure}


def _trained(config: Config, key: Key[Array, ""]) -> tuple[Kernel, Critic]:
    """The paper's network part of the way through training, and the critic at that point."""
    key_network, key_data, key_fit = jr.split(key, 3)
    target = mog6()
    initial = Normal(jnp.zeros(2), jnp.ones(2))
    network = paper_network(key_network, scale=4.0)
    kernel = Kernel(target, network, standard_normal(30), initial)
    objective = Mgan(MganConfig.tuned())
    if config.train_steps == 0:
        memory = objective.init(kernel, key_fit)
        return kernel, _critic(memory)
    steps = TrainConfig(config.train_steps, config.train_steps, patience=None, monitor=0)
    draws = exact(target, key_data, 20_000)
    done = fit(kernel, objective, draws, key=key_fit, config=steps)
    return done.kernel, _critic(done.memory)


def _critic(memory: MganMemory) -> Critic:
    assert memory.critics.states is not None
    return memory.critics.states


@eqx.filter_jit
def _repeat(
    kernel: Kernel, critic: Critic, key: Key[Array, ""], depth: int, batch: int, count: int
) -> tuple[Array, Array, Array, Array]:
    """Losses `(count, estimator)`, mean and mean square of gradients, and acceptance."""
    params, static = split_kernel(kernel)
    flat, restore = ravel_pytree(params)

    def losses(flat: Array, key_batch: Array) -> tuple[Array, Any]:
        kernel = eqx.combine(restore(flat), static)
        values, rates = jax.vmap(lambda k: _estimates(kernel, critic, k, depth))(
            jr.split(key_batch, batch)
        )
        means = -jnp.mean(values, axis=0)
        return means, (means, jnp.mean(rates))

    def once(sums: tuple[Array, Array], key_batch: Array) -> tuple[Any, Any]:
        gradients, (values, rate) = jax.jacrev(losses, has_aux=True)(flat, key_batch)
        return (sums[0] + gradients / count, sums[1] + gradients**2 / count), (values, rate)

    zeros = jnp.zeros((len(ESTIMATORS), flat.size), flat.dtype)
    (mean, square), (values, rates) = jax.lax.scan(once, (zeros, zeros), jr.split(key, count))
    return values, mean, square, rates


def _estimates(
    kernel: Kernel, critic: Critic, key: Key[Array, ""], depth: int
) -> tuple[Float[Array, " estimators"], Float[Array, ""]]:
    """All estimates of E[D] from one start and one set of auxiliaries."""
    key_start, key_auxiliary, key_bits, key_fresh = jr.split(key, 4)
    start = kernel.initial.sample(key_start)  # type: ignore[union-attr]
    auxiliaries = jax.vmap(kernel.auxiliary.sample)(jr.split(key_auxiliary, depth))
    path: Rollout = rollout(kernel, start, auxiliaries)
    scores = jax.vmap(critic)(path.positions)
    uniforms = jr.uniform(key_bits, (depth,), start.dtype)
    chi = expectation(scores, log_chi(path.log_accept))
    bits = sampled_expectation(scores, path.log_accept, uniforms)
    only = sampled_expectation(scores, jax.lax.stop_gradient(path.log_accept), uniforms)
    fresh = _fresh(kernel, critic, start, auxiliaries, key_fresh)
    return jnp.stack([chi, bits, only, fresh]), jnp.mean(jnp.exp(path.log_accept))


def _fresh(
    kernel: Kernel, critic: Critic, start: Array, auxiliaries: Array, key: Key[Array, ""]
) -> Float[Array, ""]:
    """D at the end of a chain with a new π at every step, with the score-function gradient."""

    def move(carry: tuple[State, Array], at: tuple[Array, Array]) -> tuple[Any, None]:
        state, log_probability = carry
        auxiliary, uniform = at
        proposal = kernel.propose(state, auxiliary)
        log_accept = jnp.clip(proposal.log_ratio, NEVER, 0.0)
        accepted = jnp.log(uniform) < log_accept
        new = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), proposal.state, state)
        return (
            new,
            log_probability + jnp.where(accepted, log_accept, log_reject(log_accept)),
        ), None

    uniforms = jr.uniform(key, (auxiliaries.shape[0],), start.dtype)
    begin = (kernel.init(start), jnp.zeros((), start.dtype))
    (end, log_probability), _ = jax.lax.scan(move, begin, (auxiliaries, uniforms))
    value = critic(end.position)
    score = jax.lax.stop_gradient(value) * log_probability
    return value + score - jax.lax.stop_gradient(score)

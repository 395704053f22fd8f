"""The families of the experiment on amortised proposals: light curves, and a hierarchy."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from involutive.amortised.family import Family
from involutive.targets.parameters import Parameters
from involutive.targets.priors import HalfNormal, Normal, Uniform

NIGHTS = (10, 16)  # the fewest and the most observations of a light curve
JITTER = 0.15  # days: observations are made within so much of midnight
NOISE = 0.5  # of one observation
FREQUENCIES = 24  # at which the network sees a light curve's periodogram
GROUPS = 4  # of the hierarchy

Data = dict[str, Array | np.ndarray]  # one data set


def light_curves() -> Family:
    """Nightly light curves: a frequency f and its alias 1 - f fit nearly alike.

    y(t) = a cos 2πft + b sin 2πft + c + noise, one observation a night, within minutes of the same
    hour: the two aliases differ only by how late observations are, so that both posterior modes
    are real, with weights that depend on the data.
    """
    parameters = Parameters(a=Normal(0, 1), b=Normal(0, 1), f=Uniform(0.1, 0.9), c=Normal(0, 1))

    def log_likelihood(a: Array, b: Array, f: Array, c: Array, data: Data) -> Array:
        residual = (data["y"] - light(data["t"], a, b, f, c)) / NOISE
        return -0.5 * jnp.sum(jnp.where(data["mask"], residual**2, 0.0))

    def simulate(key: Key[Array, ""], a: Array, b: Array, f: Array, c: Array) -> dict[str, Array]:
        key_count, key_time, key_noise = jr.split(key, 3)
        most = NIGHTS[1]
        mask = jnp.arange(most) < jr.randint(key_count, (), NIGHTS[0], most + 1)
        late = jr.uniform(key_time, (most,), minval=-JITTER, maxval=JITTER)
        t = jnp.arange(most) - most // 2 + late
        y = light(t, a, b, f, c) + NOISE * jr.normal(key_noise, (most,))
        return {"t": t, "y": y, "mask": mask}

    return Family(
        log_likelihood, parameters, simulate=simulate, features=periodogram, name="light curves"
    )


def light(t: Array | np.ndarray, a: Array, b: Array, f: Array, c: Array) -> Array:
    """The light at times t."""
    phase = 2 * jnp.pi * f * t
    return a * jnp.cos(phase) + b * jnp.sin(phase) + c


def periodogram(row: Data) -> Float[Array, " columns"]:
    """One observation's part in the sums that a least-squares fit at each frequency needs."""
    phase = 2 * jnp.pi * jnp.linspace(0.05, 0.95, FREQUENCIES) * row["t"]
    waves = jnp.concatenate([jnp.cos(phase), jnp.sin(phase)])
    return jnp.concatenate([row["t"][None], row["y"][None], row["y"] * waves, waves])


def hierarchy() -> Family:
    """Effects θ_j = μ + τ z_j of four groups, each measured with its own error s_j."""
    parameters = Parameters(mu=Normal(0, 2), tau=HalfNormal(2), z=Normal(0, 1, shape=(GROUPS,)))

    def log_likelihood(mu: Array, tau: Array, z: Array, data: Data) -> Array:
        residual = (data["y"] - (mu + tau * z)) / data["s"]
        return -0.5 * jnp.sum(residual**2) - jnp.sum(jnp.log(data["s"]))

    def simulate(key: Key[Array, ""], mu: Array, tau: Array, z: Array) -> dict[str, Array]:
        key_error, key_noise = jr.split(key)
        s = jnp.exp(jr.uniform(key_error, (GROUPS,), minval=jnp.log(0.5), maxval=jnp.log(2.0)))
        return {"y": mu + tau * z + s * jr.normal(key_noise, (GROUPS,)), "s": s}

    return Family(log_likelihood, parameters, simulate=simulate, name="hierarchy")

"""jaxns with its defaults; the prior is X."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxns.core import NestedSampler
from jaxns.model import Model
from jaxns.priors import Prior
from tensorflow_probability.substrates import jax as tfp

from involutive.bench.peers.base import Integral, PeerRun, Task, equal_draws


def run(task: Task) -> PeerRun:
    """One run to its own stopping rule; it compiles within the run."""
    centre = jnp.zeros(task.target.dim)

    def prior_model() -> jax.Array:
        law = tfp.distributions.MultivariateNormalDiag(centre, task.spread + centre)
        return task.log_likelihood(Prior(law, name="x").realise())

    sampler = NestedSampler(model=Model(prior_model=prior_model))
    setup = task.spent
    state = sampler.run(key=jax.random.PRNGKey(task.seed))
    found = state.to_result().trim()
    draws = equal_draws(np.asarray(found.X_samples["x"]), np.asarray(found.log_dp), task.seed)
    return PeerRun(
        draws, setup, task.spent - setup, 0.0, float(found.total_num_likelihood_evaluations),
        exchangeable=True,
        integral=Integral(float(found.log_Z_mean), float(found.log_Z_uncert)),
    )  # fmt: skip

"""NumPyro's NUTS with its defaults: 1000 warm-up steps, target acceptance 0.8, diagonal mass."""

import jax.random as jr
import numpy as np
from numpyro.infer import MCMC, NUTS

from involutive.bench.peers.base import GRADIENT, PeerRun, Task, keep_sampling

WARMUP, DRAWS = 1000, 1000  # of each chain; warm-up as Stan has it


def run(task: Task) -> PeerRun:
    """Warm up once, then sample in chunks of the same chains."""
    chains, target = int(task.peer.split("_")[1]), task.target
    mcmc = MCMC(
        NUTS(potential_fn=lambda x: -target.log_density(x)),
        num_warmup=task.size(WARMUP, 100),
        num_samples=task.size(DRAWS, 100),
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    key = jr.fold_in(task.key, 1)
    mcmc.warmup(key, init_params=task.starts(chains), extra_fields=("num_steps",))
    warmed = task.spent
    mcmc.run(mcmc.post_warmup_state.rng_key, extra_fields=("num_steps",))  # compiles
    setup, steps = task.spent, np.asarray(mcmc.get_extra_fields()["num_steps"]).sum()

    def chunk(i: int) -> tuple:
        mcmc.post_warmup_state = mcmc.last_state
        mcmc.run(mcmc.post_warmup_state.rng_key, extra_fields=("num_steps",))
        taken = np.asarray(mcmc.get_extra_fields()["num_steps"]).sum()
        return mcmc.get_samples(group_by_chain=True), GRADIENT * float(taken)

    draws, seconds, evaluations = keep_sampling(task, chunk)
    # the first draws are no set-up but their compilation is; they took about as long as later ones
    setup = max(setup - seconds / (draws.shape[1] / mcmc.num_samples), warmed)
    # the warm-up's steps are not kept; they are taken to be as long as the first draws
    return PeerRun(draws, setup, seconds, GRADIENT * float(steps), evaluations)

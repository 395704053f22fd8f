"""`sample`: chains in, draws out, chunk by chunk."""

import hashlib
import signal
import time
import warnings
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jax.sharding import Mesh

from involutive._version import __version__
from involutive.errors import check, check_count
from involutive.fingerprint import check_density
from involutive.kernel import AbstractKernel
from involutive.keys import KeyLike, as_key
from involutive.sampling.chains import BLOCK, Chains, Trace, check_positions
from involutive.sampling.checkpoint import Checkpoint, same_run
from involutive.sampling.draws import Draws
from involutive.sampling.interrupt import TERMINATED, Interrupt
from involutive.sampling.progress import Progress
from involutive.sampling.recorder import Recorder
from involutive.sampling.share import Share, share_of
from involutive.sampling.until import Until, Watch
from involutive.tensors import PathLike

CHUNK = 250  # draws a chunk: often enough to show progress, rarely enough to cost nothing
FIRST_CHUNK = 16


def sample(
    kernel: AbstractKernel,
    *,
    key: KeyLike,
    num_chains: int = 64,
    num_samples: int = 1000,
    num_warmup: int = 0,
    thin: int = 1,
    initial: Any = None,
    until: Until | None = None,
    progress: bool | None = None,
    store: str | None = None,
    checkpoint: PathLike | None = None,
    resume: bool = False,
    mesh: Mesh | None = None,
    block: int = BLOCK,
) -> Draws:
    """Run `num_chains` chains and return `num_samples` draws of each.

    Args:
        kernel: from `learn`, or `Kernel(target, involution, auxiliary)`.
        key: an int seed or a JAX key. Chain k's draws depend on the key and on k alone.
        num_chains: how many chains.
        num_samples: draws kept of each chain. A longer run begins with the draws of a shorter one.
        num_warmup: steps made first and thrown away.
        thin: steps a kept draw.
        initial: positions `(num_chains, dim)`, a law to draw them from, or None for the kernel's
            own law (a standard normal if it has none).
        until: a goal to stop at, `Until(ess=10_000, rhat=1.01)`; its `max_samples` then takes the
            place of `num_samples`.
        progress: show a progress bar; by default on a terminal.
        store: a folder; positions are written there chunk by chunk instead of held in memory.
        checkpoint: a folder that the run is saved in as it goes.
        resume: continue the run saved in `checkpoint`, bit for bit as if it had not stopped, or
            begin one if there is none. A larger `num_samples` extends it.
        mesh: devices to spread the chains over. With several processes each runs a share of the
            chains and returns the draws of that share; `merge` joins them from the checkpoint.
        block: chains a compiled block.

    Returns:
        The draws. Ctrl-C ends the run early and returns what was drawn; with a checkpoint, SIGTERM
        saves what was drawn and exits with 143.
    """
    check(isinstance(kernel, AbstractKernel), _not_a_kernel(kernel))
    root = as_key(key)
    check_count("num_chains", num_chains)
    check_count("num_samples", num_samples)
    check_count("num_warmup", num_warmup, least=0)
    check_count("thin", thin)
    check_count("block", block)
    share = share_of(mesh, num_chains, block)
    watch = _watch(until, kernel, share)
    num_samples = num_samples if until is None else until.max_samples
    check_density(kernel.target)
    if initial is not None and not isinstance(initial, AbstractDistribution):
        initial = check_positions(initial, num_chains, kernel.target.dim)
    settings = {
        "key": np.asarray(jr.key_data(root)).tolist(),
        "key_impl": str(jr.key_impl(root)),
        "num_chains": num_chains,
        "num_warmup": num_warmup,
        "thin": thin,
        "block": block,
        "dim": kernel.target.dim,
        "dtype": str(jnp.result_type(float)),
    }
    capacity = min(CHUNK, num_samples)
    chains = Chains(
        kernel, root, share.ids, capacity=capacity, thin=thin, block=block, devices=share.devices
    )
    recorder = Recorder(len(share.ids), num_samples, kernel.target.dim, store)
    saved = None
    if checkpoint is not None:
        same = same_run(kernel, initial, settings)
        saved = Checkpoint(checkpoint, same, kernel.target, share.ids, resume)
    run = Run(chains, recorder, num_warmup, num_samples, watch, saved)
    run.begin(initial)
    interrupted = run.finish(progress)
    provenance = settings | {
        "version": __version__,
        "jax": jax.__version__,
        "target": kernel.target.name,
        "num_samples": recorder.count,
        "chains": [share.ids.start, share.ids.stop],
        "kernel_hash": parameter_hash(kernel),
        "sampling_seconds": time.perf_counter() - run.began,
        "interrupted": interrupted,
        "until": watch.record() if watch else None,
    }
    return recorder.draws(kernel.target, provenance)


@dataclass
class Run:
    """One run: warm-up, then draws in chunks, saved as they come."""

    chains: Chains
    recorder: Recorder
    num_warmup: int
    num_samples: int
    watch: Watch | None
    saved: Checkpoint | None
    began: float = field(default_factory=time.perf_counter)

    def begin(self, initial: Any) -> None:
        """Place the chains: where a checkpoint left them, or at their start."""
        if self.saved and self.saved.restore(self.chains, self.recorder, self.num_warmup):
            if self.watch:
                self.watch.skip_to(self.recorder.count)
            return
        given = initial is not None and not isinstance(initial, AbstractDistribution)
        ids = self.chains.ids
        self.chains.start(initial[ids] if given else initial)

    def finish(self, progress: bool | None) -> bool:
        """Make the draws that are missing; return whether a signal ended that early."""
        total = self.num_warmup + self.num_samples
        with Progress("sampling", total, progress) as bar, Interrupt(self.saved is not None) as stop:
            try:
                self._warm_up(bar, stop)
                self._draw(bar, stop)
            except KeyboardInterrupt:
                stop.asked = stop.asked or signal.SIGINT
            if self.saved:
                self.saved.save_draws(self.recorder, force=True)
        if stop.asked is None or self.recorder.count >= self.num_samples:
            return False
        self._say_interrupted(stop.asked)
        return True

    def _not_a_kernel(kernel: object) -> str:
    found = type(kernel).__name__
    return (
        f"kernel must come from inv.learn or inv.Kernel, got {found}; pass inv.learn(target, key=0)"
    )

"""`sample`: chains in, draws out, chunk by chunk."""

import time
from typing import Any

import equinox as eqx
import hashlib
import jax
import jax.random as jr
import numpy as np

from involutive._version import __version__
from involutive.errors import check, check_count
from involutive.kernel import AbstractKernel
from involutive.keys import KeyLike, as_key
from involutive.sampling.chains import BLOCK, Chains, Trace
from involutive.sampling.draws import Draws
from involutive.sampling.progress import Progress
from involutive.sampling.until import Until, Watch

CHUNK = 250  # draws a chunk: often enough to show progress, rarely enough to cost nothing


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
        block: chains a compiled block.

    Returns:
        The draws. Ctrl-C ends the run early and returns what was drawn.
    """
    check(isinstance(kernel, AbstractKernel), _not_a_kernel(kernel))
    root = as_key(key)
    check_count("num_chains", num_chains)
    check_count("num_samples", num_samples)
    check_count("num_warmup", num_warmup, least=0)
    check_count("thin", thin)
    check_count("block", block)
    found = type(until).__name__
    check(until is None or isinstance(until, Until), f"until must be an inv.Until, got {found}")
    watch = None if until is None else Watch(until, kernel.target)
    num_samples = num_samples if until is None else until.max_samples
    capacity = min(CHUNK, num_samples)
    chains = Chains(kernel, root, range(num_chains), capacity=capacity, thin=thin, block=block)
    chains.start(initial)
    began = time.perf_counter()
    recorder = Recorder(num_chains, num_samples, kernel.target.dim, store)
    interrupted = False
    with Progress("sampling", num_warmup + num_samples, progress) as bar:
        try:
            _warm_up(chains, num_warmup, capacity, bar)
            while recorder.count < num_samples:
                room = watch.room(recorder.count) if watch else num_samples - recorder.count
                recorder.append(chains.advance(min(capacity, room)))
                seconds = time.perf_counter() - began
                done = watch is not None and watch.ends(recorder.so_far(), seconds)
                bar.update(
                    num_warmup + recorder.count,
                    acceptance=float(recorder.accepted[:, : recorder.count].mean()),
                    **{"draws/s": recorder.count * num_chains / seconds},
                    **(watch.figures() if watch else {}),
                )
                if done:
                    break
        except KeyboardInterrupt:
            interrupted = True
            check(
                recorder.count > 0,
                "interrupted before the first chunk of draws was finished; nothing to return",
            )
    provenance = {
        "version": __version__,
        "jax": jax.__version__,
        "target": kernel.target.name,
        "key": np.asarray(jr.key_data(root)).tolist(),
        "num_chains": num_chains,
        "num_samples": recorder.count,
        "num_warmup": num_warmup,
        "thin": thin,
        "kernel_hash": parameter_hash(kernel),
        "sampling_seconds": time.perf_counter() - began,
        "interrupted": interrupted,
        "until": watch.record() if watch else None,
    }
    return recorder.draws(kernel, provenance)


class Recorder:
    """Draws on the host, appended chunk by chunk; positions in a file if a folder is given."""

    def __init__(self, num_chains: int, num_samples: int, dim: int, store: str | None = None):
        self.count = 0
        shape, dtype = (num_chains, num_samples), jax.numpy.result_type(float)
        self.positions = _array(store, "positions", (*shape, dim), dtype)
        self.log_density = _array(store, "log_density", shape, dtype)
        self.accepted = _array(store, "accepted", shape, np.dtype(bool))
        self.acceptance_rate = _array(store, "acceptance_rate", shape, dtype)
        self.diverging = _array(store, "diverging", shape, np.dtype(bool))
        self.nonfinite = np.zeros(num_chains, int)
        self.irreversible = np.zeros(num_chains, int)

    def append(self, trace: Trace) -> None:
        """Add one chunk of draws of all chains."""
        end = self.count + trace.log_density.shape[1]
        self.positions[:, self.count : end] = trace.position
        self.log_density[:, self.count : end] = trace.log_density
        self.accepted[:, self.count : end] = trace.accepted
        self.acceptance_rate[:, self.count : end] = trace.acceptance_rate
        self.diverging[:, self.count : end] = trace.nonfinite | np.isposinf(trace.log_density)
        self.nonfinite += trace.nonfinite.sum(axis=1)
        self.irreversible += trace.irreversible.sum(axis=1)
        self.count = end

    def so_far(self) -> np.ndarray:
        """The positions recorded so far, `(chains, draws, dim)`."""
        return self.positions[:, : self.count]

    def draws(self, kernel: AbstractKernel, provenance: dict[str, Any]) -> Draws:
        """Return what was recorded so far."""
        done = slice(None), slice(self.count)
        return Draws(
            positions=self.positions[done],
            log_density=self.log_density[done],
            accepted=self.accepted[done],
            acceptance_rate=self.acceptance_rate[done],
            diverging=self.diverging[done],
            nonfinite=self.nonfinite,
            irreversible=self.irreversible,
            stopped=np.isposinf(self.log_density[:, self.count - 1]),
            target=kernel.target,
            provenance=provenance,
        )


def parameter_hash(kernel: AbstractKernel) -> str:
    """SHA-256 over every array of the kernel, to show that sampling did not change it."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(eqx.filter(kernel, eqx.is_array)):
        array = np.ascontiguousarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def _warm_up(chains: Chains, steps: int, capacity: int, bar: Progress) -> None:
    thin, chains.thin, done = chains.thin, 1, 0
    while done < steps:
        count = min(capacity, steps - done)
        chains.advance(count)
        done += count
        bar.update(done, phase="warm-up")
    chains.thin = thin


def _array(store: str | None, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    if store is None:
        return np.zeros(shape, dtype)
    from pathlib import Path

    folder = Path(store)
    folder.mkdir(parents=True, exist_ok=True)
    return np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype, shape)


def _not_a_kernel(kernel: object) -> str:
    found = type(kernel).__name__
    return (
        f"kernel must come from inv.learn or inv.Kernel, got {found}; pass inv.learn(target, key=0)"
    )

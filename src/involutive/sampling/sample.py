"""`sample`: run chains of a kernel and return their draws."""

import hashlib
import time
from dataclasses import asdict
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jax.sharding import Mesh
from jaxtyping import Array, Key

from involutive._version import __version__
from involutive._xla.compilation import make_room
from involutive.core.errors import check, check_count
from involutive.core.keys import KeyLike, as_key
from involutive.core.text import as_json
from involutive.core.types import ArrayLike
from involutive.kernel.kernel import AbstractKernel
from involutive.sampling.checkpoint import Checkpoint
from involutive.sampling.devices import Share, share_of
from involutive.sampling.draws import Draws
from involutive.sampling.recorder import Recorder
from involutive.sampling.run import ChainRun
from involutive.sampling.runner import Chains, width_on_host
from involutive.sampling.same_run import same_run, saved_block
from involutive.sampling.starts import check_positions
from involutive.sampling.stopping import Until, Watch
from involutive.storage.format import PathLike
from involutive.targets.validation import check_density

CHUNK = 250  # maximum draws per chunk: often enough to show progress, rarely enough to cost little


def sample(
    kernel: AbstractKernel,
    *,
    key: KeyLike,
    num_chains: int = 64,
    num_samples: int = 1000,
    num_warmup: int | None = None,
    thin: int = 1,
    initial: AbstractDistribution | ArrayLike | None = None,
    until: Until | None = None,
    progress: bool | None = None,
    store: PathLike | None = None,
    checkpoint: PathLike | None = None,
    resume: bool = False,
    mesh: Mesh | None = None,
    block: int | None = None,
) -> Draws:
    """Run `num_chains` chains and return `num_samples` draws of each.

    Args:
        kernel: from `learn`, or `Kernel(target, involution, auxiliary)`.
        key: an int seed or a JAX key. Chain k's draws depend on the key and on k alone, but for
            rounding, which can depend on `block`.
        num_chains: the number of chains.
        num_samples: draws kept per chain. A longer run begins with the draws of a shorter one.
        num_warmup: warm-up steps that are discarded; by default as many as a learned kernel advises
            (its `warmup`), and none for other kernels.
        thin: keep every `thin`-th step.
        initial: positions `(num_chains, dim)`, a distribution to draw them from, or None for that
            of the kernel, else the target's (its prior), else a standard normal.
        until: a goal to stop at, `Until(ess=10_000, rhat=1.01)`; its `max_samples` then replaces
            `num_samples`.
        progress: show a progress bar; by default on a terminal.
        store: a folder; positions are written there chunk by chunk instead of held in memory.
        checkpoint: a folder in which the run is saved as it goes.
        resume: continue the run saved in `checkpoint`, bit for bit as if it had not stopped; if
            there is none, a run begins. A larger `num_samples` extends it.
        mesh: devices to spread the chains over. With several processes each runs a share of the
            chains and returns the draws of that share; `merge` joins them from the checkpoint.
        block: chains per compiled block; by default 32, or 256 for at least 1024 chains, or that of
            the run resumed.

    Returns:
        The draws. Ctrl-C ends the run early and returns the draws so far; with a checkpoint,
        SIGTERM saves the draws so far and exits with 143.

    Raises:
        InputError: if an argument cannot be right, or a chain starts where the density is not
            finite.

    Example:
        >>> import involutive as inv
        >>> kernel = inv.hmc(inv.targets.mog2(), step_size=0.2, num_steps=5)
        >>> draws = inv.sample(kernel, key=0, num_chains=8, num_samples=20, num_warmup=5)
        >>> draws.positions.shape
        (8, 20, 2)
    """
    _check_arguments(kernel, checkpoint, resume)
    make_room()
    root = as_key(key)
    num_warmup = _check_sizes(kernel, num_chains, num_samples, num_warmup, thin)
    block = _width(kernel, num_chains, block, checkpoint if resume else None)
    share = share_of(mesh, num_chains, block)
    watch = _watch(until, kernel, share)
    num_samples = num_samples if until is None else until.max_samples
    check_density(kernel.target)
    if initial is not None and not isinstance(initial, AbstractDistribution):
        initial = check_positions(initial, num_chains, kernel.target.dim)
    settings = _settings(root, kernel, num_chains, num_warmup, thin, share.block)
    chains = _chains(kernel, root, share, num_samples, thin)
    recorder = Recorder(len(share.ids), num_samples, kernel.target.dim, store)
    saved = None
    if checkpoint is not None:
        same = same_run(kernel, initial, settings)
        saved = Checkpoint(checkpoint, same, kernel.target, share.ids, resume)
    run = ChainRun(chains, recorder, num_warmup, num_samples, watch, saved)
    run.begin(initial)
    interrupted = run.finish(progress)
    ended = {"interrupted": interrupted, "elsewhere": initial is None and kernel.starts is not None}
    return recorder.draws(kernel.target, settings | _provenance(run, share) | ended)


def _check_arguments(kernel: AbstractKernel, checkpoint: PathLike | None, resume: bool) -> None:
    """Check what does not depend on sizes."""
    check(isinstance(kernel, AbstractKernel), _not_a_kernel(kernel))
    check(
        checkpoint is not None or not resume,
        "resume=True needs checkpoint=, the folder of the run to continue, got none",
    )


def _check_sizes(
    kernel: AbstractKernel, num_chains: int, num_samples: int, num_warmup: int | None, thin: int
) -> int:
    """Check the sizes of a run; return its warm-up steps, by default those the kernel advises."""
    check_count("num_chains", num_chains)
    check_count("num_samples", num_samples)
    advised = getattr(kernel, "warmup", 0)
    num_warmup = check_count("num_warmup", advised if num_warmup is None else num_warmup, least=0)
    check_count("thin", thin)
    return num_warmup


def _chains(
    kernel: AbstractKernel, root: Key[Array, ""], share: Share, num_samples: int, thin: int
) -> Chains:
    """The chains of this process, not started yet."""
    # rounded up to a power of two, so that runs of similar length share a compilation
    capacity = min(CHUNK, 1 << (num_samples - 1).bit_length())
    return Chains(
        kernel, root, share.ids,
        capacity=capacity, thin=thin, block=share.block, devices=share.devices,
    )  # fmt: skip


def _width(
    kernel: AbstractKernel, num_chains: int, block: int | None, resumed: PathLike | None
) -> int | None:
    """Chains per block: the given number, that of the run resumed, or that for a host density."""
    if block is None and resumed is not None:
        block = saved_block(resumed)
    if block is None and kernel.target.black_box is not None:
        block = width_on_host(num_chains)
    return None if block is None else check_count("block", block)


def _settings(
    root: Key[Array, ""],
    kernel: AbstractKernel,
    num_chains: int,
    num_warmup: int,
    thin: int,
    block: int,
) -> dict[str, Any]:
    """The settings that determine the draws, together with the kernel and its density."""
    return {
        "key": np.asarray(jr.key_data(root)).tolist(),
        "key_impl": str(jr.key_impl(root)),
        "num_chains": num_chains,
        "num_warmup": num_warmup,
        "thin": thin,
        "block": block,
        "dim": kernel.target.dim,
        "dtype": str(jnp.result_type(float)),
    }


def _provenance(run: ChainRun, share: Share) -> dict[str, Any]:
    """The provenance of the draws of a finished run."""
    kernel = run.chains.kernel
    return {
        "version": __version__,
        "jax": jax.__version__,
        "target": kernel.target.name,
        "num_samples": run.recorder.count,
        "chains": [share.ids.start, share.ids.stop],
        "kernel_hash": parameter_hash(kernel),
        "sampling_seconds": time.perf_counter() - run.began,
        "until": run.watch.record() if run.watch else None,
        "looked": _looked(kernel),
    }


def _looked(kernel: AbstractKernel) -> dict[str, Any] | None:
    """The record of learning's searches for missed modes, for the verdict; None without one."""
    looked = getattr(getattr(kernel, "outcome", None), "looked", None)
    return None if looked is None else as_json(asdict(looked))


def parameter_hash(kernel: AbstractKernel) -> str:
    """SHA-256 over every array of the kernel, to show that sampling did not change it."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(eqx.filter(kernel, eqx.is_array)):
        array = np.ascontiguousarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def _watch(until: Until | None, kernel: AbstractKernel, share: Share) -> Watch | None:
    found = type(until).__name__
    check(until is None or isinstance(until, Until), f"until must be an inv.Until, got {found}")
    check(
        until is None or share.processes == 1,
        f"until looks at all chains together, got {share.processes} processes; use num_samples",
    )
    return None if until is None else Watch(until, kernel.target)


def _not_a_kernel(kernel: object) -> str:
    found = type(kernel).__name__
    return (
        f"kernel must come from inv.learn or inv.Kernel, got {found}; pass inv.learn(target, key=0)"
    )

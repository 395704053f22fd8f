"""`sample`: chains in, draws out, chunk by chunk."""

import hashlib
import signal
import time
import warnings
from dataclasses import asdict, dataclass, field
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
from involutive.sampling.interrupt import TERMINATED, Interrupt
from involutive.sampling.mixing import Mixing
from involutive.sampling.progress import Progress
from involutive.sampling.recorder import Recorder
from involutive.sampling.runner import Chains, width_on_host
from involutive.sampling.same_run import same_run, saved_block
from involutive.sampling.starts import check_positions
from involutive.sampling.stopping import Until, Watch
from involutive.storage.format import PathLike
from involutive.targets.validation import check_density

CHUNK = 250  # draws a chunk: often enough to show progress, rarely enough to cost nothing
FIRST_CHUNK = 16
SHORT, LONG = 0.25, 1.0  # seconds: a quicker chunk is followed by a longer one, and the reverse


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
    store: str | None = None,
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
        num_chains: how many chains.
        num_samples: draws kept of each chain. A longer run begins with the draws of a shorter one.
        num_warmup: steps made first and thrown away; by default as many as a learned kernel asks
            for (its `warmup`), and none for other kernels.
        thin: keep every `thin`-th step.
        initial: positions `(num_chains, dim)`, a distribution to draw them from, or None for that
            of the kernel, else the target's (its prior), else a standard normal.
        until: a goal to stop at, `Until(ess=10_000, rhat=1.01)`; its `max_samples` then takes the
            place of `num_samples`.
        progress: show a progress bar; by default on a terminal.
        store: a folder; positions are written there chunk by chunk instead of held in memory.
        checkpoint: a folder that the run is saved in as it goes.
        resume: continue the run saved in `checkpoint`, bit for bit as if it had not stopped, or
            begin one if there is none. A larger `num_samples` extends it.
        mesh: devices to spread the chains over. With several processes each runs a share of the
            chains and returns the draws of that share; `merge` joins them from the checkpoint.
        block: chains a compiled block; by default 32, from 1024 chains on 256, or the width of the
            run resumed.

    Returns:
        The draws. Ctrl-C ends the run early and returns what was drawn; with a checkpoint, SIGTERM
        saves what was drawn and exits with 143.

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
    check(isinstance(kernel, AbstractKernel), _not_a_kernel(kernel))
    make_room()
    root = as_key(key)
    check_count("num_chains", num_chains)
    check_count("num_samples", num_samples)
    advised = getattr(kernel, "warmup", 0)
    num_warmup = check_count("num_warmup", advised if num_warmup is None else num_warmup, least=0)
    check_count("thin", thin)
    block = _width(kernel, num_chains, block, checkpoint if resume else None)
    share = share_of(mesh, num_chains, block)
    watch = _watch(until, kernel, share)
    num_samples = num_samples if until is None else until.max_samples
    check_density(kernel.target)
    if initial is not None and not isinstance(initial, AbstractDistribution):
        initial = check_positions(initial, num_chains, kernel.target.dim)
    settings = _settings(root, kernel, num_chains, num_warmup, thin, share.block)
    capacity = min(CHUNK, 1 << (num_samples - 1).bit_length())  # runs alike share a compilation
    chains = Chains(
        kernel, root, share.ids,
        capacity=capacity, thin=thin, block=share.block, devices=share.devices,
    )  # fmt: skip
    recorder = Recorder(len(share.ids), num_samples, kernel.target.dim, store)
    saved = None
    if checkpoint is not None:
        same = same_run(kernel, initial, settings)
        saved = Checkpoint(checkpoint, same, kernel.target, share.ids, resume)
    run = Run(chains, recorder, num_warmup, num_samples, watch, saved)
    run.begin(initial)
    interrupted = run.finish(progress)
    ended = {"interrupted": interrupted, "elsewhere": initial is None and kernel.starts is not None}
    return recorder.draws(kernel.target, settings | _provenance(run, share) | ended)


def _width(
    kernel: AbstractKernel, num_chains: int, block: int | None, resumed: PathLike | None
) -> int | None:
    """Chains per block: as given, as in the run resumed, or as a density of the host has them."""
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
    """What decides the draws, beside the kernel and its density."""
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


def _provenance(run: "Run", share: Share) -> dict[str, Any]:
    """How the draws of a finished run came about."""
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
    mixing: Mixing = field(default_factory=Mixing)

    def begin(self, initial: AbstractDistribution | ArrayLike | None) -> None:
        """Place the chains: where a checkpoint left them, or at their start."""
        if self.saved and self.saved.restore(self.chains, self.recorder, self.num_warmup):
            if self.watch:
                self.watch.skip_to(self.recorder.count)
            return
        self.chains.start(initial[self.chains.ids] if isinstance(initial, np.ndarray) else initial)

    def finish(self, progress: bool | None) -> bool:
        """Make the draws that are missing; return whether a signal ended that early."""
        total = self.num_warmup + self.num_samples
        terminate = self.saved is not None
        with Progress("sampling", total, progress) as bar, Interrupt(terminate) as stop:
            try:
                self._warm_up(bar, stop)
                self._draw(bar, stop)
            except KeyboardInterrupt:
                stop.asked = stop.asked or signal.SIGINT
            if self.saved:
                self.saved.save_draws(self.recorder, self.chains, force=True)
        if stop.asked is None or self.recorder.count >= self.num_samples:
            return False
        self._say_interrupted(stop.asked)
        return True

    def _warm_up(self, bar: Progress, stop: Interrupt) -> None:
        chains, pace = self.chains, Pace(self.chains.capacity)
        thin, chains.thin = chains.thin, 1
        while chains.step < self.num_warmup and stop.asked is None:
            pace.advance(chains, self.num_warmup - chains.step)
            bar.update(chains.step, during="warm-up")
            if self.saved:
                last = stop.asked is not None or chains.step == self.num_warmup
                self.saved.save_state(chains, force=last)
        chains.thin = thin

    def _draw(self, bar: Progress, stop: Interrupt) -> None:
        bar.update(during=None)
        recorder, watch, pace = self.recorder, self.watch, Pace(self.chains.capacity)
        done = watch is not None and recorder.count > 0 and watch.ends(recorder.so_far(), 0.0)
        while recorder.count < self.num_samples and stop.asked is None and not done:
            room = watch.room(recorder.count) if watch else self.num_samples - recorder.count
            made = pace.advance(self.chains, room, recorder)
            recorder.count += made  # last, so that an interrupt leaves whole chunks
            if self.saved:
                self.saved.save_draws(recorder, self.chains)
            seconds = time.perf_counter() - self.began
            done = watch is not None and watch.ends(recorder.so_far(), seconds)
            bar.update(
                self.num_warmup + recorder.count,
                **self.mixing.figures(recorder),
                **(watch.figures() if watch else {}),
                **{"draws per second": recorder.count * len(self.chains.ids) / seconds},
            )

    def _say_interrupted(self, number: int) -> None:
        if self.saved:
            name = signal.Signals(number).name
            warnings.warn(f"{name}: {self.saved.how_to_resume()}", stacklevel=4)
        if number == signal.SIGTERM:
            raise SystemExit(TERMINATED)
        check(
            self.recorder.count > 0,
            "interrupted before the first chunk of draws was finished; nothing to return",
        )


class Pace:
    """Chunks long enough to cost nothing and short enough to stop, show and save in between."""

    def __init__(self, most: int):
        self.most, self.count = most, min(FIRST_CHUNK, most)

    def advance(self, chains: Chains, room: int, recorder: Recorder | None = None) -> int:
        """Make and record at most `room` draws; return how many.

        The next chunk is longer or shorter by what this one took.
        """
        began, count = time.perf_counter(), min(self.count, room)
        chains.advance(count, recorder.ahead(count) if recorder else None)
        seconds = time.perf_counter() - began
        if seconds < SHORT:
            self.count = min(2 * self.count, self.most)
        elif seconds > LONG:
            self.count = max(self.count // 2, 1)
        return count


def _looked(kernel: AbstractKernel) -> dict[str, Any] | None:
    """How learning looked for what it may have missed, for the verdict; None if nothing did."""
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

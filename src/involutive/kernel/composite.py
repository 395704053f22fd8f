"""Compositions of kernels: a random choice of one, or all of them in turn."""

from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Float, Key, PyTree

from involutive._xla.compilation import on_device
from involutive.core.errors import check
from involutive.core.types import ArrayLike
from involutive.kernel.kernel import AbstractKernel, Info, State, carries
from involutive.targets.target import Target


class _Several(AbstractKernel):
    """Kernels of one target on one lattice, of which at most one has a carried state."""

    kernels: eqx.AbstractVar[tuple[AbstractKernel, ...]]

    @property
    def grid(self) -> float | None:
        return self.kernels[0].grid

    def carry(self, position: Float[Array, " dim"], key: Key[Array, ""] | None = None) -> PyTree:
        return _first_carried(self.kernels, position, key)


class Mixture(_Several):
    """Choose one of several kernels by fixed probabilities at every step.

    Args:
        kernels: kernels of one target.
        probabilities: one positive number per kernel, up to a constant.

    Raises:
        InputError: if there is no kernel, their targets or lattices differ, or a probability is
            not positive.

    Example:
        >>> import involutive as inv
        >>> target = inv.targets.gaussian(2)
        >>> parts = [inv.random_walk(target, 0.5), inv.hmc(target, 0.1, 3)]
        >>> inv.Mixture(parts, [3, 1]).probabilities.tolist()
        [0.75, 0.25]
    """

    target: Target
    initial: AbstractDistribution | None
    kernels: tuple[AbstractKernel, ...]
    probabilities: Float[Array, " kernels"]  # an array, so that other values need no compilation

    def __init__(self, kernels: Iterable[AbstractKernel], probabilities: ArrayLike):
        self.kernels = _check_kernels(kernels)
        chances = np.asarray(probabilities, dtype=float)
        check(
            chances.shape == (len(self.kernels),) and (chances > 0).all(),
            f"probabilities must be {len(self.kernels)} positive numbers, got {probabilities}",
        )
        self.probabilities = on_device(chances / chances.sum())
        self.target, self.initial = self.kernels[0].target, _first_initial(self.kernels)

    def draw(self, key: Key[Array, ""]) -> tuple[Array, tuple[Any, ...]]:
        """Draw the choice, and the randomness of every kernel from one key, as one is used."""
        key_choice, key_move = jr.split(key)
        levels = jnp.cumsum(self.probabilities)
        choice = jnp.sum(levels[-1] * jr.uniform(key_choice, dtype=levels.dtype) >= levels[:-1])
        data, impl = jr.key_data(key_move), jr.key_impl(key_move)
        return choice, tuple(k.draw(jr.wrap_key_data(data, impl=impl)) for k in self.kernels)

    def move(self, noise: tuple[Array, tuple[Any, ...]], state: State) -> tuple[State, Info]:
        choice, noises = noise
        # makes all moves, as `switch` does under `vmap`, which also copies networks for every chain
        moves = [k.move(part, state) for k, part in zip(self.kernels, noises, strict=True)]
        return jax.tree.map(lambda *leaves: jax.lax.select_n(choice, *leaves), *moves)


class Cycle(_Several):
    """Apply several kernels one after the other in every step.

    Args:
        kernels: kernels of one target, in the order they are applied.

    Raises:
        InputError: if there is no kernel, or their targets or lattices differ.

    Example:
        >>> import involutive as inv
        >>> target = inv.targets.gaussian(2)
        >>> kernel = inv.Cycle([inv.random_walk(target, 0.5), inv.hmc(target, 0.1, 3)])
        >>> len(kernel.kernels)
        2
    """

    target: Target
    initial: AbstractDistribution | None
    kernels: tuple[AbstractKernel, ...]

    def __init__(self, kernels: Iterable[AbstractKernel]):
        self.kernels = _check_kernels(kernels)
        self.target, self.initial = self.kernels[0].target, _first_initial(self.kernels)

    def draw(self, key: Key[Array, ""]) -> tuple[Any, ...]:
        keys = jr.split(key, len(self.kernels))
        return tuple(k.draw(key_move) for k, key_move in zip(self.kernels, keys, strict=True))

    def move(self, noise: tuple[Any, ...], state: State) -> tuple[State, Info]:
        infos = []
        for kernel, part in zip(self.kernels, noise, strict=True):
            state, info = kernel.move(part, state)
            infos.append(info)
        return state, _combined(infos)


def _combined(infos: list[Info]) -> Info:
    """The last proposal and ratio; moved if any kernel moved; the mean acceptance rate."""
    return Info(
        proposal=infos[-1].proposal,
        log_ratio=infos[-1].log_ratio,
        accepted=jnp.any(jnp.stack([i.accepted for i in infos])),
        acceptance_rate=jnp.mean(jnp.stack([i.acceptance_rate for i in infos])),
        nonfinite=jnp.any(jnp.stack([i.nonfinite for i in infos])),
        irreversible=jnp.any(jnp.stack([i.irreversible for i in infos])),
    )


def _check_kernels(kernels: Iterable[AbstractKernel]) -> tuple[AbstractKernel, ...]:
    kernels = tuple(kernels)
    check(len(kernels) > 0, "kernels must hold at least one kernel, got none")
    for kernel in kernels:
        found = type(kernel).__name__
        check(isinstance(kernel, AbstractKernel), f"kernels must be kernels, got a {found}")
    dims = [kernel.target.dim for kernel in kernels]
    check(len(set(dims)) == 1, f"kernels must share one target, got targets of dimension {dims}")
    # a position off the lattice would be rounded by the next kernel, which is no involution
    grids = [kernel.grid for kernel in kernels]
    check(
        len(set(grids)) == 1,
        f"kernels must move on one lattice, or none of them on any, got spacings {grids}",
    )
    return kernels


def _first_initial(kernels: tuple[AbstractKernel, ...]) -> AbstractDistribution | None:
    return next((kernel.initial for kernel in kernels if kernel.initial is not None), None)


def _first_carried(
    kernels: tuple[AbstractKernel, ...], position: Float[Array, " dim"], key: Key[Array, ""] | None
) -> PyTree:
    """The carried state of the one kernel that has one; the others pass it on."""
    found = [kernel.mover for kernel in kernels if carries(kernel)]
    check(len(found) <= 1, f"one kernel may carry replicas, got {len(found)}")
    return found[0].carry(position, key) if found else ()

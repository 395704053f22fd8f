"""What training improves: an objective updates a kernel from draws of the target.

An objective is a pair of pure functions, like an Optax optimiser: `init` makes what it has to
remember between updates (optimiser states, a critic), `update` makes one improvement. The loop in
`fit.py` runs every objective; nothing else does.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Key, PyTree
from paramax import NonTrainable

from involutive.kernel.kernel import Kernel

UpdateMetrics = dict[str, Float[Array, ""]]
Data = Float[Array, "n dim"]
Carry = tuple[PyTree, PyTree]  # parameters, and the state of their optimiser


class AbstractObjective(eqx.Module):
    """One way to improve a kernel."""

    @abc.abstractmethod
    def init(self, kernel: Kernel, key: Key[Array, ""]) -> PyTree:
        """Return what the objective remembers between updates."""

    @abc.abstractmethod
    def update(
        self, kernel: Kernel, memory: PyTree, data: Data, key: Key[Array, ""]
    ) -> tuple[Kernel, PyTree, UpdateMetrics]:
        """Make one improvement; return the kernel, the memory and metrics to show.

        The metrics contain `skipped`, 1 where a non-finite gradient was not applied.
        """

    @abc.abstractmethod
    def held_out(self, kernel: Kernel, data: Data, key: Key[Array, ""]) -> Float[Array, ""]:
        """The measure, lower is better, by which the best parameters are kept."""


def is_fixed(leaf: object) -> bool:
    """Whether a node of a pytree is marked as not trainable."""
    return isinstance(leaf, NonTrainable)


def split_trainable(tree: PyTree) -> tuple[PyTree, PyTree]:
    """Split a module into its trainable arrays and the rest; `eqx.combine` joins them again."""
    return eqx.partition(tree, eqx.is_inexact_array, is_leaf=is_fixed)


def split_kernel(kernel: Kernel) -> tuple[PyTree, PyTree]:
    """Split a kernel: the involution's and the auxiliary distribution's arrays are trainable."""
    nothing = jax.tree.map(lambda _: False, kernel)
    spec = eqx.tree_at(
        lambda k: (k.involution, k.auxiliary),
        nothing,
        tuple(
            jax.tree.map(eqx.is_inexact_array, part, is_leaf=is_fixed)
            for part in (kernel.involution, kernel.auxiliary)
        ),
        is_leaf=lambda node: node is None,
    )
    return eqx.partition(kernel, spec, is_leaf=is_fixed)


def apply_gradient(
    optimiser: optax.GradientTransformation, gradient: PyTree, params: PyTree, memory: PyTree
) -> tuple[PyTree, PyTree, Float[Array, ""]]:
    """One optimiser step, or none where the gradient is not finite; also return whether skipped."""
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(gradient)]))
    updates, new_memory = optimiser.update(gradient, memory, params)
    new_params = eqx.apply_updates(params, updates)

    def keep(new: Any, old: Any) -> Any:
        return jnp.where(finite, new, old) if eqx.is_array(new) else new

    params = jax.tree.map(keep, new_params, params)
    memory = jax.tree.map(keep, new_memory, memory)
    return params, memory, 1.0 - finite.astype(jnp.result_type(float))


def gradient_step(
    optimiser: optax.GradientTransformation,
    loss: Callable[[Any], Float[Array, ""]],
    parts: tuple[PyTree, PyTree],
    memory: PyTree,
) -> tuple[Any, PyTree, UpdateMetrics]:
    """One step on the loss of a module, given as its trainable arrays and the rest."""
    params, rest = parts
    value, gradient = jax.value_and_grad(lambda p: loss(eqx.combine(p, rest)))(params)
    params, memory, skipped = apply_gradient(optimiser, gradient, params, memory)
    return eqx.combine(params, rest), memory, {"loss": value, "skipped": skipped}


def minibatch(data: Data, key: Key[Array, ""], size: int) -> Float[Array, "rows dim"]:
    """Draw `size` rows with replacement; under a mesh, spread evenly over its devices."""
    rows = data[jax.random.randint(key, (size,), 0, data.shape[0])]
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or size % mesh.size:
        return rows
    return jax.lax.with_sharding_constraint(rows, PartitionSpec(mesh.axis_names))

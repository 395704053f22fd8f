"""SOAP: Adam in the eigenbasis of a matrix's gradient covariances.

For a matrix with gradients G, L and R are moving averages of G Gᵀ and Gᵀ G and Q_L, Q_R their
eigenvectors. The second moment is that of Q_Lᵀ G Q_R, and the update is Adam's there, rotated back.
The eigenvectors follow L and R by one step of the power method with a QR factorisation every
`every` updates (Vyas et al., SOAP: Improving and Stabilizing Shampoo using Adam, 2024). Vectors
have Adam's update. Matrices of equal shape, transposed if they are wide, are updated together.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

Stack = Float[Array, "k rows columns"]


class Rotated(NamedTuple):
    """Moments of a stack of matrices, with the covariances of its gradients and their bases."""

    mean: Stack
    square: Stack
    left: Float[Array, "k rows rows"]
    right: Float[Array, "k columns columns"]
    left_basis: Float[Array, "k rows rows"]
    right_basis: Float[Array, "k columns columns"]


class SoapState(NamedTuple):
    """Updates made, a state per shape of matrix, and Adam's state."""

    count: Int[Array, ""]
    stacks: dict[tuple[int, int], Rotated]
    adam: PyTree


def scale_by_soap(
    b1: float = 0.9, b2: float = 0.99, every: int = 10, eps: float = 1e-8
) -> optax.GradientTransformation:
    """The direction of SOAP; chain it with a learning rate.

    Args:
        b1: decay of the mean gradient.
        b2: decay of its square and of the covariances.
        every: updates between two steps of the eigenvectors; 10 is the authors' value.
        eps: added to the root of the square.

    Returns:
        The Optax transformation.
    """
    adam = optax.scale_by_adam(b1, b2, eps)

    def init(params: PyTree) -> SoapState:
        stacks = {shape: _start(stack) for shape, stack in _stacks(params).items()}
        return SoapState(jnp.zeros((), jnp.int32), stacks, adam.init(params))

    def update(updates: PyTree, state: PyTree, params: PyTree = None) -> tuple[PyTree, SoapState]:
        plain, adam_state = adam.update(updates, state.adam, params)
        count = state.count + 1
        directions, stacks = {}, {}
        for shape, gradient in _stacks(updates).items():
            moments = _followed(state.stacks[shape], gradient, b2, state.count, every)
            moments = moments._replace(
                mean=b1 * moments.mean + (1 - b1) * gradient,
                square=b2 * moments.square + (1 - b2) * _rotate(moments, gradient) ** 2,
            )
            mean = _rotate(moments, moments.mean) / (1 - b1**count)
            root = jnp.sqrt(moments.square / (1 - b2**count))
            directions[shape] = _rotate_back(moments, mean / (root + eps))
            stacks[shape] = moments
        return _unstacked(directions, plain), SoapState(count, stacks, adam_state)

    return optax.GradientTransformation(init, update)


def _transpose(x: Float[Array, "k a b"]) -> Float[Array, "k b a"]:
    return jnp.swapaxes(x, -1, -2)


def _start(stack: Stack) -> Rotated:
    k, rows, columns = stack.shape
    zero = jnp.zeros_like(stack)
    left, right = (
        jnp.broadcast_to(jnp.eye(n, dtype=stack.dtype), (k, n, n)) for n in (rows, columns)
    )
    return Rotated(zero, zero, 0 * left, 0 * right, left, right)


def _followed(
    moments: Rotated, gradient: Stack, decay: float, count: Int[Array, ""], every: int
) -> Rotated:
    """Covariances with one more gradient, and at every `every`-th update their new bases."""
    left = decay * moments.left + (1 - decay) * gradient @ _transpose(gradient)
    right = decay * moments.right + (1 - decay) * _transpose(gradient) @ gradient

    def turned() -> tuple[Array, Array]:
        both = (left @ moments.left_basis, right @ moments.right_basis)
        return tuple(jnp.linalg.qr(power)[0] for power in both)  # type: ignore[return-value]

    def kept() -> tuple[Array, Array]:
        return moments.left_basis, moments.right_basis

    left_basis, right_basis = jax.lax.cond(count % every == 0, turned, kept)
    return moments._replace(left=left, right=right, left_basis=left_basis, right_basis=right_basis)


def _rotate(moments: Rotated, x: Stack) -> Stack:
    return _transpose(moments.left_basis) @ x @ moments.right_basis


def _rotate_back(moments: Rotated, x: Stack) -> Stack:
    return moments.left_basis @ x @ _transpose(moments.right_basis)


def _shape(matrix: Array) -> tuple[int, int]:
    rows, columns = matrix.shape
    return max(rows, columns), min(rows, columns)


def _upright(matrix: Array) -> Array:
    return matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T


def _stacks(tree: PyTree) -> dict[tuple[int, int], Stack]:
    """The matrices of a pytree by their shape, the wide ones transposed."""
    found: dict[tuple[int, int], list[Array]] = {}
    for leaf in jax.tree.leaves(tree):
        if leaf.ndim == 2:
            found.setdefault(_shape(leaf), []).append(_upright(leaf))
    return {shape: jnp.stack(matrices) for shape, matrices in found.items()}


def _unstacked(stacks: dict[tuple[int, int], Stack], tree: PyTree) -> PyTree:
    """`tree` with its matrices replaced by those of the stacks."""
    following = {shape: iter(stack) for shape, stack in stacks.items()}

    def place(leaf: Array) -> Array:
        if leaf.ndim != 2:
            return leaf
        matrix = next(following[_shape(leaf)])
        return matrix if leaf.shape[0] >= leaf.shape[1] else matrix.T

    return jax.tree.map(place, tree)

"""Positions of any shape as flat vectors, in the order that was given.

JAX flattens a dict by the alphabet. People read names in the order they wrote them, so dicts keep
that order here: in the flat vector, in what the density receives, and in every table.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from involutive.core.errors import InputError, check

Vector = Float[Array, " dim"]


class Form:
    """The shape of a position: which part of the flat vector is which leaf of the pytree.

    Hashed by identity, so that it may be static.

    Args:
        like: an example position, any pytree of numbers.
    """

    def __init__(self, like: PyTree):
        numbers = jax.tree_util.tree_map_with_path(_as_float, _ordered(like, like))
        flat, unravel = ravel_pytree(numbers)
        check(flat.size > 0, "like must hold at least one number, got an empty position")
        self.size = int(flat.size)
        self._unravel: Callable[[Vector], Any] = unravel
        # kept for the shape and the order of its keys alone
        self._like = _plain(jax.tree.map(lambda _: 0, numbers), like)

    def flatten(self, position: PyTree) -> Vector:
        """Return a position as one float vector; a vector is returned as it is."""
        ordered = _ordered(position, self._like)
        return ravel_pytree(jax.tree_util.tree_map_with_path(_as_float, ordered))[0]

    def restore(self, x: Vector) -> PyTree:
        """Return the position of a flat vector, as the density receives it."""
        return _plain(self._unravel(x), self._like)

    def named(self, x: Vector) -> dict[str, Array]:
        """Return the leaves by name: `{"a": {"b": 1.0}}` gives `{"a.b": 1.0}`."""
        leaves = jax.tree_util.tree_leaves_with_path(self._unravel(x))
        return {_name(path) or "x": leaf for path, leaf in leaves}

    def coordinate(self, i: int) -> str:
        """The name of a coordinate of the flat vector, such as `a.b[2]`."""
        for name, places in self.named(jnp.arange(float(self.size))).items():
            for index in np.argwhere(np.asarray(places) == i):
                return f"{name}[{', '.join(map(str, index))}]" if index.size else name
        return f"x[{i}]"


def _as_float(path: tuple[object, ...], leaf: object) -> Array:
    try:
        return jnp.asarray(leaf, dtype=float)
    except (TypeError, ValueError) as error:
        place = f" at {_name(path)}" if path else ""
        raise InputError(
            f"a position must hold numbers and arrays of numbers, got {leaf!r}{place}; "
            "pass for example like={'a': 0.0}"
        ) from error


def _ordered(tree: PyTree, like: PyTree) -> PyTree:
    """The tree with every dict as an ordered one, by the keys of `like`; JAX keeps their order."""
    if type(like) is dict and isinstance(tree, dict) and like.keys() == tree.keys():
        return OrderedDict((key, _ordered(tree[key], like[key])) for key in like)
    return _same_kind(_ordered, tree, like)


def _plain(tree: PyTree, like: PyTree) -> PyTree:
    """Undo `_ordered`."""
    if type(like) is dict:
        return {key: _plain(tree[key], like[key]) for key in like}
    return _same_kind(_plain, tree, like)


def _same_kind(change: Callable[[Any, Any], Any], tree: PyTree, like: PyTree) -> PyTree:
    if isinstance(like, list | tuple) and type(tree) is type(like) and len(tree) == len(like):
        parts = [change(*pair) for pair in zip(tree, like, strict=True)]
        return type(tree)(*parts) if hasattr(like, "_fields") else type(tree)(parts)
    return tree


def _name(path: tuple[object, ...]) -> str:
    return ".".join(
        str(getattr(entry, "key", getattr(entry, "name", getattr(entry, "idx", entry))))
        for entry in path
    )

"""Families: one density of parameters and data, p(x, D), for many data sets D.

For every D the density of x alone is a target like any other. A simulator draws pairs
(x, D) ~ p(x) p(D | x); without one, the data sets themselves are what there is to learn from.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from involutive._xla.compilation import on_device
from involutive._xla.lapack import OneByOne
from involutive.amortised.layout import (
    MASK,
    DataSet,
    Layout,
    Observed,
    arrays_of,
    layout_of,
    standard_form,
)
from involutive.core.errors import InputError, check
from involutive.core.text import first_line
from involutive.core.types import ArrayLike
from involutive.storage.format import PathLike
from involutive.targets.by_name import OnParameters
from involutive.targets.parameters import Parameters, as_parameters
from involutive.targets.target import Target
from involutive.targets.validation import fixed_points

Vector = Float[Array, " dim"]
ROUNDING = 1e-3  # relative difference that padding may make; standard: sums in single precision


class Conditioned(eqx.Module):
    """`log_density` with its data: arrays, so that other data compile nothing anew."""

    function: Callable[..., Any] = eqx.field(static=True)
    data: Observed
    named: bool = eqx.field(static=True)

    def __call__(self, *position: Vector, **values: Array) -> Any:  # what the user's returns
        if self.named:
            return self.function(data=self.data, **values)
        return self.function(*position, self.data)


class Family:
    """One density of parameters and data, and with every data set one posterior.

    Args:
        log_density: `log_density(x, data)` where `parameters` is a dimension, and
            `log_density(data=..., **values)` where it is `Parameters`; with priors it is the log
            likelihood, as for `Target`.
        parameters: the number of coordinates, or `Parameters`.
        data: a list of data sets, each an array or a dict of arrays. Data sets that differ in
            length are dicts with one row per observation; the density is then given padded arrays
            and `data["mask"]`, false where a row is padding.
        simulate: draws a data set: `simulate(key, **values)` where every parameter has a prior,
            else `simulate(key)`, which returns the pair of position (or values) and data set.
            A JAX function is compiled; any other is called as it is.
        exchangeable: whether rows are observations whose order does not matter; by default true if
            data sets differ in length or have a mask.
        features: maps what the network reads to one vector: one observation (a dict of one row of
            every array) or, if rows are not exchangeable, one data set. By default the network
            reads all numbers as they are.
        name: shown in reports.

    Attributes:
        dim: the number of unconstrained coordinates.
        layout: the form that all data sets share.
        template: the target of the first known data set.
        traced: whether the simulator is a JAX function.

    Raises:
        InputError: if density, data and simulator do not fit together.

    Example:
        >>> import involutive as inv, jax.numpy as jnp, jax.random as jr
        >>> def log_likelihood(mu, data): return -0.5 * jnp.sum((data - mu) ** 2)
        >>> def simulate(key, mu): return mu + jr.normal(key, (5,))
        >>> parameters = inv.Parameters(mu=inv.Normal(0, 2))
        >>> family = inv.Family(log_likelihood, parameters, simulate=simulate)
        >>> family.at(jnp.ones(5)).dim
        1
    """

    def __init__(
        self,
        log_density: Callable[..., Any],
        parameters: Parameters | Mapping[str, object] | int,
        *,
        data: Sequence[DataSet] | Array | np.ndarray | None = None,
        simulate: Callable[..., Any] | None = None,
        exchangeable: bool | None = None,
        features: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ):
        found = type(log_density).__name__
        check(callable(log_density), f"log_density must be a function, got {found}")
        check(
            data is not None or simulate is not None,
            "a family needs data=, a list of data sets, or simulate=, which draws them",
        )
        check(simulate is None or callable(simulate), "simulate must be a function, or left out")
        self.log_density, self.simulate, self.features = log_density, simulate, features
        given = as_parameters(parameters)
        self.parameters = given if isinstance(given, Parameters) else None
        self._given = given
        self.name = name or getattr(log_density, "__name__", "family").strip("<>")
        self.data = [] if data is None else as_list("data", data)
        self.traced = False
        examples = self.data or [self._example()]
        self.layout: Layout = layout_of(examples, exchangeable)
        checked(self.layout, examples)
        self.template: Target = self.at(examples[0])
        self.dim: int = self.template.dim
        if simulate is not None:
            self._check_simulator()
        if self.layout.exchangeable:
            self._check_padding(examples[0])
        self.columns: int = self.feature_rows(self.layout.padded(examples[0])).shape[-1]

    @property
    def has_priors(self) -> bool:
        """Whether every parameter has a prior, so that the simulator is given its values."""
        return self.parameters is not None and self.parameters.have_priors

    def at(self, data: DataSet) -> Target:
        """Return the target of one data set.

        Args:
            data: an array or a dict of arrays, of the same form as the family's data sets.

        Returns:
            The posterior of that data set, for everything that takes a `Target`.

        Raises:
            InputError: if the data set does not look like the family's others.
        """
        bound = self._bound(jax.tree.map(on_device, self.layout.padded(data)))
        how = None if self.parameters is None else "names"
        return Target(bound, self._given, name=self.name, arguments=how)

    def density(self, observed: Observed) -> Callable[[Vector], Array]:
        """The log density of the unconstrained vector for a padded data set; it may be traced."""
        bound = self._bound(observed)
        if self.parameters is not None:
            bound = OnParameters(bound, self.parameters, "names")
        alone = isinstance(self.template.log_density, OneByOne)
        return OneByOne(bound) if alone else bound

    def with_data(self, observed: Observed) -> Target:
        """The template with other data, without checks: it may be traced."""
        return eqx.tree_at(lambda t: t.log_density, self.template, self.density(observed))

    def feature_rows(self, observed: Observed) -> Float[Array, "... columns"]:
        """What the network sees of a padded data set: one row per observation, or one vector."""
        seen = observed
        if isinstance(observed, Mapping):
            seen = {name: array for name, array in observed.items() if name != MASK}
        features = self.features or _joined
        return jax.vmap(features)(seen) if self.layout.exchangeable else features(seen)

    def pair(self, key: Key[Array, ""]) -> tuple[Vector, DataSet]:
        """A draw (x, D) of the simulator; D as the simulator returns it."""
        assert self.simulate is not None
        if not self.has_priors:
            key_pair, key_rest = jr.split(key)
            position, data = self.simulate(key_pair)
            return self._flat(position, key_rest), data
        assert self.parameters is not None
        key_x, key_data = jr.split(key)
        x = self.parameters.draw(key_x)
        return x, self.simulate(key_data, **self.parameters.constrain(x))

    def pairs(self, key: Key[Array, ""], count: int) -> tuple[Float[Array, "count dim"], Observed]:
        """Draws of the simulator: positions `(count, dim)` and padded data sets, stacked."""
        keys = jr.split(key, count)
        if self.traced:
            return _traced_pairs(self, keys)
        drawn = [self.pair(key) for key in keys]
        x = np.stack([np.asarray(x) for x, _ in drawn])
        return on_device(x), jax.tree.map(on_device, self.layout.stacked([d for _, d in drawn]))

    def _flat(self, position: ArrayLike | Mapping[str, ArrayLike], key: Key[Array, ""]) -> Vector:
        if self.parameters is not None and isinstance(position, Mapping):
            return self.parameters.unconstrain(position, key)
        return jnp.ravel(jnp.asarray(position, jnp.result_type(float)))

    def _bound(self, observed: Observed) -> Conditioned:
        return Conditioned(self.log_density, observed, self.parameters is not None)

    def _example(self) -> DataSet:
        """One simulated data set; it also tells whether the simulator is a JAX function."""
        rule = "simulate must return a data set"
        if not self.has_priors:
            rule = (
                "simulate(key) must return the pair (position, data set) where not every parameter "
                "has a prior"
            )
        try:
            _, data = self.pair(jr.key(0))
        except InputError:
            raise
        except Exception as error:
            line = first_line(error).rstrip(".")
            raise InputError(f"{rule}, but it raised {type(error).__name__}: {line}") from error
        return data

    def _check_simulator(self) -> None:
        data = self._example()
        try:
            self.layout.arrays(data)
        except InputError as error:
            raise InputError(
                f"simulate must return data sets like those of data=: {error}"
            ) from error
        if self.layout.exchangeable:  # padded ones may be longer than what was observed
            longest = max(len(array) for array in arrays_of(data).values())
            self.layout = replace(self.layout, rows=max(self.layout.rows, longest))
        x, _ = self.pair(jr.key(1))
        check(
            x.shape == (self.dim,),
            f"simulate must return a position of {self.dim} numbers, got shape {x.shape}",
        )
        try:
            jax.eval_shape(self.pair, jr.key(0))
        except Exception:  # not made of JAX operations: called as it is
            return
        self.traced = True

    def _check_padding(self, data: DataSet) -> None:
        """Padding must not change the density: a mask that is not used makes it wrong."""
        point = jnp.asarray(fixed_points(self.dim)[0], jnp.result_type(float))
        short, long = (
            float(self.density(self.layout.padded(data, rows))(point))
            for rows in (self.layout.rows, 2 * self.layout.rows)
        )
        check(
            np.isclose(short, long, rtol=ROUNDING, atol=ROUNDING, equal_nan=True),
            "log_density must ignore rows where data['mask'] is false, but padding changed it from "
            f"{short:.6g} to {long:.6g}; sum jnp.where(data['mask'], terms, 0.0)",
        )

    def load_kernel(self, path: PathLike) -> object:
        """Load a kernel of this family; `inv.load` calls this."""
        from involutive.amortised.kernel import load_family_kernel  # which imports this file

        return load_family_kernel(path, self)

    def __repr__(self) -> str:
        how = "with a simulator" if self.simulate else f"{len(self.data)} data sets"
        return f"Family({self.name}, dim {self.dim}, {how})"


def _traced_pairs(family: Family, keys: Key[Array, " n"]) -> tuple[Array, Observed]:
    x, data = jax.vmap(family.pair)(keys)
    return x, standard_form(family.layout, data)


def as_list(name: str, data: Sequence[DataSet] | Array | np.ndarray) -> list[DataSet]:
    """A list of data sets, or say what was given in its place."""
    one = isinstance(data, Mapping | str) or getattr(data, "ndim", 1) == 0
    check(
        not one and hasattr(data, "__len__"),
        f"{name} must be a list of data sets, got {type(data).__name__}; pass [data] for one",
    )
    check(len(data) > 0, f"{name} must hold at least one data set, got an empty list")
    return list(data)


def checked(layout: Layout, data_sets: Sequence[DataSet]) -> None:
    """Refuse a data set that does not fit the layout, with its number."""
    for number, data in enumerate(data_sets):
        try:
            layout.arrays(data)
        except InputError as error:
            raise InputError(f"data set {number}: {error}") from error


def _joined(values: Observed) -> Float[Array, " columns"]:
    parts = [values[name] for name in sorted(values)] if isinstance(values, Mapping) else [values]
    return jnp.concatenate([jnp.ravel(jnp.asarray(part)) for part in parts])

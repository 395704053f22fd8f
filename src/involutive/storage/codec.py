"""Modules as data: a tree of registered classes becomes JSON and named arrays, and back.

A file names classes and functions, and a name is only ever looked up among those that `register`
was called with: the one registry. Nothing is imported or run because a file says so. Fields are
restored as they were; what a constructor would refuse (an index array that is no involution, sizes
that do not match) is refused here too.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from types import CodeType
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution

from involutive.core.errors import InputError, check
from involutive.storage.format import Arrays
from involutive.targets.parameters import Initial
from involutive.targets.target import Target

ItemT = TypeVar("ItemT")
Described = None | bool | int | float | str | list[Any] | dict[str, Any]  # as JSON allows
MARK = "$"  # the field that tells a described node from a plain value


@dataclasses.dataclass(frozen=True)
class InnerFunction:
    """A function that exists only inside what a public constructor makes, known by its captures.

    A function is recognised by its code: it is the code of one that the constructor makes.

    Args:
        build: returns the function for captured values, by way of the constructor.
        example: captured values to build one with, to compare code.
        capture: returns the captured values of such a function; by default those in its closure,
            which must bear the names in `example`.
        also: builds another function that is recognised as this one.
    """

    build: Callable[..., Callable[..., Any]]
    example: Mapping[str, Any]
    capture: Callable[[Callable[..., Any]], dict[str, Any]] | None = None
    also: Callable[[], Callable[..., Any]] | None = None

    @cached_property
    def codes(self) -> list[CodeType | None]:
        made = [self.build(**self.example)] + ([] if self.also is None else [self.also()])
        return [_code(function) for function in made]

    def captured(self, function: Callable[..., object]) -> dict[str, Any] | None:
        """The values that a function captured, or None if it is not one of these."""
        code = _code(function)
        if code is None or code not in self.codes:
            return None
        if self.capture is not None:
            return self.capture(function)
        found = inspect.getclosurevars(inspect.unwrap(function)).nonlocals
        return {name: found[name] for name in self.example}


def _code(function: Callable[..., object]) -> CodeType | None:
    return getattr(inspect.unwrap(function), "__code__", None)


Item = type | Callable[..., Any] | InnerFunction

# The one registry: what a file may name, by name; and the name of everything in it, by identity.
_known: dict[str, Item] = {}
_names: dict[int, str] = {}
_checks: dict[str, Callable[[Any], object]] = {}


def register(
    item: ItemT, name: str | None = None, check: Callable[[Any], object] | None = None
) -> ItemT:
    """Register a class of modules, or a function used in one, for `save` and `load`.

    Args:
        item: a class whose fields are its state (an `eqx.Module`, a dataclass, a `NamedTuple`), or
            a function. Usable as a decorator.
        name: what files call it; by default its own name.
        check: called with every loaded instance; it raises on one that cannot be right.

    Returns:
        The item itself.

    Raises:
        InputError: if the item is neither, has no name, or its name is taken.

    Example:
        >>> import involutive as inv
        >>> def double(x):
        ...     return 2 * x
        >>> inv.register(double, name="mine.double") is double
        True
    """
    name = name or getattr(item, "__name__", None)
    if not callable(item) and not isinstance(item, InnerFunction):
        raise InputError(f"register takes a class or a function, got {type(item).__name__}")
    if not name or "<" in name:
        raise InputError(f"register needs a name for {item!r}; pass register(item, name='...')")
    known = _known.get(name)
    if known is not None and known is not item and origin(known) != origin(item):
        raise InputError(
            f"the name {name} is already registered for {'.'.join(origin(known))}; "
            "pass register(item, name='...') with another"
        )
    _known[name] = item
    _names.setdefault(id(item), name)
    if check is not None:
        _checks[name] = check
    return item


def origin(item: object) -> tuple[str, str]:
    return getattr(item, "__module__", ""), getattr(item, "__qualname__", str(item))


# ── Writing ─────────────────────────────────────────────────────────────────────────────────────


class Encoder:
    """Describe a tree as JSON, its arrays collected by their path in `arrays`.

    With `strict=False` an unregistered object is described by its type alone: good enough to tell
    two kernels apart, not to load one.
    """

    def __init__(self, strict: bool = True):
        self.arrays: Arrays = {}
        self.targets: list[Target] = []
        self.strict = strict

    def __call__(self, node: object, path: str = "") -> Described:
        if node is None or isinstance(node, bool | str):
            return node
        if isinstance(node, int | float) and not isinstance(node, np.generic):
            return node
        if isinstance(node, Target):
            self.targets.append(node)
            return {MARK: "target"}
        if isinstance(node, Initial):  # made anew from the target, as priors may be anything
            return {MARK: "initial"}
        if isinstance(node, jax.Array | np.ndarray | np.generic):
            return self._array(node, path)
        if isinstance(node, list | tuple) and not hasattr(node, "_fields"):
            parts = [self(part, f"{path}.{i}") for i, part in enumerate(node)]
            return {MARK: "list" if isinstance(node, list) else "tuple", "items": parts}
        if isinstance(node, dict) and all(isinstance(key, str) for key in node):
            return {MARK: "dict", "items": self._fields(node, path)}
        if isinstance(node, slice):
            return {MARK: "slice", "items": [node.start, node.stop, node.step]}
        return self._object(node, path)

    def _fields(self, fields: Mapping[str, Any], path: str) -> dict[str, Any]:
        return {name: self(value, f"{path}.{name}") for name, value in fields.items()}

    def _array(self, node: jax.Array | np.ndarray | np.generic, path: str) -> dict[str, Any]:
        name = path.strip(".") or "value"
        if isinstance(node, jax.Array) and jnp.issubdtype(node.dtype, jax.dtypes.prng_key):
            self.arrays[name] = np.asarray(jr.key_data(node))
            return {MARK: "key", "name": name, "impl": str(jr.key_impl(node))}
        self.arrays[name] = np.asarray(node)
        return {MARK: "array" if isinstance(node, jax.Array) else "numpy", "name": name}

    def _object(self, node: object, path: str) -> dict[str, Any]:
        if id(node) in _names:
            return {MARK: "function", "name": _names[id(node)]}
        if id(type(node)) in _names:
            fields = self._fields(_state(node), path)
            return {MARK: "object", "name": _names[id(type(node))], "fields": fields}
        for name, item in _known.items():
            if not isinstance(item, InnerFunction) or not callable(node):
                continue
            captured = item.captured(node)
            if captured is not None:
                return {MARK: "closure", "name": name, "fields": self._fields(captured, path)}
        if not self.strict:
            is_module = dataclasses.is_dataclass(node) and not isinstance(node, type)
            fields = self._fields(_state(node), path) if is_module else {}
            return {MARK: "unknown", "name": ".".join(origin(type(node))), "fields": fields}
        where = path.strip(".") or "the kernel"
        kind = "function" if callable(node) and not isinstance(node, eqx.Module) else "class"
        known = getattr(node, "__qualname__", None) if kind == "function" else type(node).__name__
        raise InputError(
            f"save knows only registered classes and functions, got the {kind} "
            f"{known or type(node).__name__} at {where}; call involutive.register on it first"
        )


def _state(node: object) -> dict[str, Any]:
    names = _field_names(type(node))
    return {name: getattr(node, name) for name in names if hasattr(node, name)}


def _field_names(cls: type) -> tuple[str, ...]:
    if hasattr(cls, "_fields"):
        return cls._fields  # type: ignore[attr-defined]
    check(dataclasses.is_dataclass(cls), f"{cls.__name__} must be an eqx.Module or a dataclass")
    return tuple(field.name for field in dataclasses.fields(cls))


def _defaults(cls: type) -> dict[str, Any]:
    """The defaults of fields that have one; files written before a field existed lack it."""
    if not dataclasses.is_dataclass(cls):
        return {}
    missing = dataclasses.MISSING
    return {f.name: f.default for f in dataclasses.fields(cls) if f.default is not missing}


# ── Reading ─────────────────────────────────────────────────────────────────────────────────────


class Decoder:
    """Rebuild a described tree around `target` from `arrays`."""

    def __init__(self, arrays: Arrays, target: Target | None):
        self.arrays, self.target = arrays, target

    def __call__(self, node: Described) -> Any:  # whatever was described
        if not isinstance(node, dict):
            check(not isinstance(node, list), "a described tree must mark its lists")
            return node
        read = getattr(self, f"_read_{node.get(MARK)}", None)
        if read is None:
            raise InputError(f"unknown kind of node {str(node.get(MARK))[:40]!r}")
        return read(node)

    def _read_target(self, node: dict) -> Target | None:
        return self.target

    def _read_initial(self, node: dict) -> AbstractDistribution | None:
        found = None if self.target is None else self.target.initial
        check(found is not None, "it starts from declared parameters, and the target has none")
        return found

    def _read_array(self, node: dict) -> jax.Array:
        return jnp.asarray(self.arrays[node["name"]])

    def _read_numpy(self, node: dict) -> np.ndarray:
        return self.arrays[node["name"]]

    def _read_key(self, node: dict) -> jax.Array:
        return jr.wrap_key_data(jnp.asarray(self.arrays[node["name"]]), impl=node["impl"])

    def _read_list(self, node: dict) -> list:
        return [self(part) for part in node["items"]]

    def _read_tuple(self, node: dict) -> tuple:
        return tuple(self(part) for part in node["items"])

    def _read_dict(self, node: dict) -> dict:
        return {name: self(part) for name, part in node["items"].items()}

    def _read_slice(self, node: dict) -> slice:
        return slice(*map(self, node["items"]))

    def _read_function(self, node: dict) -> Callable:
        item = _lookup("function", node["name"])
        check(not isinstance(item, type), f"{node['name']} must be a function, got a class")
        return item

    def _read_closure(self, node: dict) -> Callable:
        item = _lookup("function", node["name"])
        check(isinstance(item, InnerFunction), f"{node['name']} must be a function with captures")
        return item.build(**{name: self(part) for name, part in node["fields"].items()})

    def _read_object(self, node: dict) -> object:
        cls = _lookup("class", node["name"])
        check(isinstance(cls, type), f"{node['name']} must be a class, got a function")
        fields = {name: self(part) for name, part in node["fields"].items()}
        fields = _defaults(cls) | fields
        strange = set(fields) ^ set(_field_names(cls))
        check(not strange, f"fields of {node['name']} differ in {sorted(strange)[:4]}")
        if hasattr(cls, "_fields"):
            return cls(**fields)
        made = object.__new__(cls)
        for name, value in fields.items():
            object.__setattr__(made, name, value)
        _checks.get(node["name"], lambda _: None)(made)
        return made


def _lookup(kind: str, name: object) -> Any:
    if not isinstance(name, str) or name not in _known:
        raise InputError(
            f"the {kind} {str(name)[:60]!r} is not registered here; import the code that defines "
            f"it and call involutive.register on it, if you trust the file"
        )
    return _known[name]

"""Modules as data: a tree of registered classes becomes JSON and named arrays, and back.

A file names classes and functions, and a name is only ever looked up among those registered here
or by the caller. Nothing is imported or run because a file says so. Fields are restored as they
were; what a constructor would refuse (an index array that is no involution, sizes that do not
match) is refused here too.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from involutive.core.errors import InputError, check
from involutive.storage.format import Arrays
from involutive.targets.target import Target

MARK = "$"  # the field that tells a described node from a plain value

_classes: dict[str, type] = {}
_functions: dict[str, Callable] = {}
_checks: dict[Any, Callable[[Any], object]] = {}
# functions made inside constructors: what they captured (None if not this one), how to remake them
_closures: dict[str, tuple[Callable[[Any], dict[str, Any] | None], Callable[..., Any]]] = {}


def register(
    item: Any, name: str | None = None, check: Callable[[Any], object] | None = None
) -> Any:
    """Let `save` and `load` know a class of modules, or a function used in one.

    Args:
        item: a class whose fields are its state (an `eqx.Module`, a dataclass, a `NamedTuple`), or
            a function. Usable as a decorator.
        name: what files call it; by default its own name.
        check: called with every loaded instance; it raises on one that cannot be right.

    Returns:
        The item itself.
    """
    name = name or getattr(item, "__name__", None)
    table: dict[str, Any] = _classes if isinstance(item, type) else _functions
    if not isinstance(item, type) and not callable(item):
        raise InputError(f"register takes a class or a function, got {type(item).__name__}")
    if not name or "<" in name:
        raise InputError(f"register needs a name for {item!r}; pass register(item, name='...')")
    known = table.get(name)
    if known is not None and known is not item and origin(known) != origin(item):
        raise InputError(
            f"the name {name} is already registered for {'.'.join(origin(known))}; "
            "pass register(item, name='...') with another"
        )
    table[name] = item
    if check is not None:
        _checks[item] = check
    return item


def register_closure(
    name: str,
    recognise: Callable[[Any], dict[str, Any] | None],
    build: Callable[..., Any],
) -> None:
    """Let files name a function that exists only inside another: by what it captured."""
    _closures[name] = (recognise, build)


def _all_classes(name: Any) -> dict[str, type]:
    """The registered classes, and the modules of this package that have that name."""
    if name in _classes:
        return _classes
    found, families = {}, [eqx.Module]
    while families:
        cls = families.pop()
        families += cls.__subclasses__()
        if cls.__name__ == name and cls.__module__.startswith("involutive."):
            found[name] = cls
    return _classes | found


def origin(item: Any) -> tuple[str, str]:
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

    def __call__(self, node: Any, path: str = "") -> Any:
        if node is None or isinstance(node, bool | str):
            return node
        if isinstance(node, int | float) and not isinstance(node, np.generic):
            return node
        if isinstance(node, Target):
            self.targets.append(node)
            return {MARK: "target"}
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

    def _array(self, node: Any, path: str) -> dict[str, Any]:
        name = path.strip(".") or "value"
        if isinstance(node, jax.Array) and jnp.issubdtype(node.dtype, jax.dtypes.prng_key):
            self.arrays[name] = np.asarray(jr.key_data(node))
            return {MARK: "key", "name": name, "impl": str(jr.key_impl(node))}
        self.arrays[name] = np.asarray(node)
        return {MARK: "array" if isinstance(node, jax.Array) else "numpy", "name": name}

    def _object(self, node: Any, path: str) -> dict[str, Any]:
        for name, function in _functions.items():
            if node is function:
                return {MARK: "function", "name": name}
        for name, (recognise, _) in _closures.items():
            captured = recognise(node)
            if captured is not None:
                return {MARK: "closure", "name": name, "fields": self._fields(captured, path)}
        for name, cls in _all_classes(type(node).__name__).items():
            if type(node) is cls:
                return {MARK: "object", "name": name, "fields": self._fields(_state(node), path)}
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


def _state(node: Any) -> dict[str, Any]:
    names = _field_names(type(node))
    return {name: getattr(node, name) for name in names if hasattr(node, name)}


def _field_names(cls: type) -> tuple[str, ...]:
    if hasattr(cls, "_fields"):
        return cls._fields  # type: ignore[attr-defined]
    check(dataclasses.is_dataclass(cls), f"{cls.__name__} must be an eqx.Module or a dataclass")
    return tuple(field.name for field in dataclasses.fields(cls))


# ── Reading ─────────────────────────────────────────────────────────────────────────────────────


class Decoder:
    """Rebuild a described tree around `target` from `arrays`."""

    def __init__(self, arrays: Arrays, target: Target | None):
        self.arrays, self.target = arrays, target

    def __call__(self, node: Any) -> Any:
        if not isinstance(node, dict):
            check(not isinstance(node, list), "a described tree must mark its lists")
            return node
        read = getattr(self, f"_read_{node.get(MARK)}", None)
        if read is None:
            raise InputError(f"unknown kind of node {str(node.get(MARK))[:40]!r}")
        return read(node)

    def _read_target(self, node: dict) -> Any:
        return self.target

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
        return _known(_functions, "function", node["name"])

    def _read_closure(self, node: dict) -> Callable:
        _, build = _known(_closures, "function", node["name"])
        return build(**{name: self(part) for name, part in node["fields"].items()})

    def _read_object(self, node: dict) -> Any:
        cls = _known(_all_classes(node["name"]), "class", node["name"])
        fields = {name: self(part) for name, part in node["fields"].items()}
        strange = set(fields) ^ set(_field_names(cls))
        check(not strange, f"fields of {node['name']} differ in {sorted(strange)[:4]}")
        if hasattr(cls, "_fields"):
            return cls(**fields)
        made = object.__new__(cls)
        for name, value in fields.items():
            object.__setattr__(made, name, value)
        _checks.get(cls, lambda _: None)(made)
        return made


def _known(table: Mapping[str, Any], kind: str, name: Any) -> Any:
    if not isinstance(name, str) or name not in table:
        raise InputError(
            f"the {kind} {str(name)[:60]!r} is not registered here; import the code that defines "
            f"it and call involutive.register on it, if you trust the file"
        )
    return table[name]

"""Training of a network, saved as it goes: the last network and the optimiser's state, as data."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from involutive.amortised.family import Family
from involutive.amortised.settings import AmortiseSettings
from involutive.core.errors import check
from involutive.storage.format import PathLike, as_path, read_tensors, write_tensors
from involutive.storage.save_load import check_kind

KIND = "amortising"


class SavedTraining:
    """The file of one run of `amortise`; without a path it keeps nothing.

    Args:
        path: the file, or None.
        resume: whether to go on from what it holds.
        key: of the network, to recognise the run.
        settings: the sizes of the run.
        family: what is being learned.
    """

    def __init__(
        self,
        path: PathLike | None,
        resume: bool,
        key: Key[Array, ""],
        settings: AmortiseSettings,
        family: Family,
    ):
        self.path = None if path is None else as_path(path)
        self._same = {
            "key": np.asarray(jr.key_data(key)).tolist(),
            "settings": repr(settings),
            "dim": family.dim,
        }
        self._stage, self._leaves, self._done = 0, list[np.ndarray](), 0
        if resume and self.path is not None and self.path.exists():
            self._load()

    def _load(self) -> None:
        assert self.path is not None
        arrays, header = read_tensors(self.path, fall_back=True)
        check_kind(self.path, header, KIND)
        for name, value in self._same.items():
            check(
                header.get(name) == value,
                f"{self.path} was saved by a run with {name}={header.get(name)}, got {value}; "
                "resume with the same arguments, or choose another file",
            )
        self._stage, self._done = header["stage"], header["done"]
        self._leaves = [arrays[f"{i}"] for i in range(len(arrays))]

    def read(self, stage: int, network: Any, memory: Any) -> tuple[Any, Any, int]:
        """The network, memory and number of updates to go on from in a stage."""
        if self._stage < stage:
            return network, memory, 0
        arrays, static = eqx.partition((network, memory), eqx.is_array)
        leaves, form = jax.tree.flatten(arrays)
        if self._stage > stage:  # of the stage after it: this one has ended
            count = len(jax.tree.leaves(eqx.filter(network, eqx.is_array)))
            leaves = [jnp.asarray(x) for x in self._leaves[:count]] + leaves[count:]
            network, memory = eqx.combine(jax.tree.unflatten(form, leaves), static)
            return network, memory, round(float(memory.total))
        check(len(leaves) == len(self._leaves), f"{self.path} holds another network; begin anew")
        found = jax.tree.unflatten(form, [jnp.asarray(x) for x in self._leaves])
        return *eqx.combine(found, static), self._done

    def write(self, stage: int, network: Any, memory: Any, done: int) -> None:
        """Save where training is."""
        if self.path is None:
            return
        leaves = jax.tree.leaves(eqx.filter((network, memory), eqx.is_array))
        arrays = {f"{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        write_tensors(self.path, arrays, self._same | {"kind": KIND, "stage": stage, "done": done})

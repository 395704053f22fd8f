"""Experiments: a frozen config in, a result saved as data, figures drawn from what was saved.

An experiment is one module of this package with

    Config            a frozen dataclass with a `seed`; `Config.quick()` takes seconds
    run(config)       -> {name: array, number or text}, everything the rest needs; a long one yields
                      what it has so far, and loses only the part in flight when it is ended;
                      `run(config, folder)` may keep parts in its folder and take them up again
    table(data)       -> rows of a table, each {column: number or text}
    claims(data)      -> {sentence: bool}, the qualitative claims, each true or false
    draw(data)        -> {name: Matplotlib figure}

and a docstring whose first line is its title. A new file is listed the moment it exists.

`run_experiment` writes one folder: `result.json` (config, seed, versions, numbers, claims),
`data.npz` (arrays, no pickle), `table.md`, `table.json` and one PNG per figure.
"""

import dataclasses
import importlib
import inspect
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from involutive.core.errors import check, check_count
from involutive.core.files import make_folder
from involutive.core.text import markdown_table
from involutive.experiments.catalogue import list_experiments
from involutive.sampling.progress import hidden

Number = bool | int | float | str
Value = np.ndarray | Number
Data = Mapping[str, Any]
Rows = Sequence[Mapping[str, Any]]

DOTS = 160  # dots per inch


@runtime_checkable
class Config(Protocol):
    """The config of an experiment, a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def seed(self) -> int: ...


@dataclass(frozen=True)
class Experiment:
    """One module of this package, by its parts."""

    name: str
    title: str
    config: type[Any]
    run: Callable[..., Data | Iterator[Data]]
    table: Callable[[Data], Rows]
    claims: Callable[[Data], Mapping[str, Any]]
    draw: Callable[[Data], Mapping[str, Any]]


@dataclass(frozen=True)
class ExperimentRun:
    """What a run left behind: the folder, and what it says.

    Attributes:
        name: the experiment.
        folder: where everything was written.
        rows: the table.
        claims: each claim with whether it held.
        figures: the pictures written.
        seconds: how long `run` took.
    """

    name: str
    folder: Path
    rows: list[dict[str, Number]]
    claims: dict[str, bool]
    figures: list[Path]
    seconds: float

    @property
    def markdown(self) -> str:
        """The table in Markdown."""
        return markdown_table(self.rows)


def find_experiment(name: str) -> Experiment:
    """Return the experiment called `name`, or say which there are."""
    known = list_experiments()
    check(name in known, f"experiment must be one of {', '.join(known)} (or all), got {name!r}")
    m = _module(name)
    return Experiment(name, known[name], m.Config, m.run, m.table, m.claims, m.draw)


def run_experiment(
    name: str,
    *,
    quick: bool = False,
    out: str | Path = "results",
    seed: int | None = None,
    seeds: int | None = None,
    progress: bool | None = None,
) -> ExperimentRun:
    """Run an experiment and write config, seed, versions, data, table and figures into `out/name`.

    Args:
        name: one of `list_experiments()`.
        quick: use `Config.quick()`, the version tests run.
        out: the folder that `name`'s own folder is made in.
        seed: replaces the config's seed.
        seeds: replaces the number of seeds, in an experiment that is run over several.
        progress: False hides progress bars; None shows them on a terminal.
    """
    experiment = find_experiment(name)
    config = _configured(experiment, quick, seed, seeds)
    folder = make_folder(Path(out) / name, Path(out))
    began = time.perf_counter()
    header = {
        "experiment": name,
        "title": experiment.title,
        "quick": quick,
        "seed": config.seed,
        "config": _described(config),
        "versions": versions(),
    }
    rows, claims, figures, seconds = [], {}, [], 0.0
    try:
        with hidden(progress is False):
            for data in _parts(_begun(experiment, config, folder)):
                seconds = time.perf_counter() - began
                rows = [{k: _plain(v) for k, v in row.items()} for row in experiment.table(data)]
                claims = {claim: bool(holds) for claim, holds in experiment.claims(data).items()}
                save_result(folder, header | {"seconds": seconds, "claims": claims}, data, rows)
    finally:  # a run that is ended has the pictures of what it saved
        if rows:
            figures = draw_saved(folder)
    return ExperimentRun(name, folder, rows, claims, figures, seconds)


def _configured(experiment: Experiment, quick: bool, seed: int | None, seeds: int | None) -> Config:
    """The experiment's config, with the seed and the number of seeds that were asked for."""
    config = experiment.config.quick() if quick else experiment.config()
    if seed is not None:
        config = dataclasses.replace(config, seed=check_count("seed", seed, least=0))
    if seeds is not None:
        counted = [n for n in list_experiments() if hasattr(_module(n).Config, "seeds")]
        check(
            hasattr(config, "seeds"),
            f"seeds must be left out of {experiment.name}, which is not run over several seeds; "
            f"those that are: {', '.join(counted)}",
        )
        config = dataclasses.replace(config, seeds=check_count("seeds", seeds))
    return config


def _begun(experiment: Experiment, config: Config, folder: Path) -> Data | Iterator[Data]:
    """`run`, with the folder where it takes one."""
    if "folder" in inspect.signature(experiment.run).parameters:
        return experiment.run(config, folder=folder)  # type: ignore[call-arg]
    return experiment.run(config)


def _parts(found: Data | Iterator[Data]) -> Iterator[Data]:
    """What `run` returned, or everything it yields."""
    return iter([found]) if isinstance(found, Mapping) else found


def save_result(folder: Path, header: dict[str, Any], data: Data, rows: Rows) -> None:
    """Write `result.json`, `data.npz`, `table.md` and `table.json`."""
    arrays, numbers = {}, {}
    for key, value in data.items():
        plain = _plain(value)
        if isinstance(plain, np.ndarray):
            check(plain.dtype != object, f"data must be numbers or text, got objects in {key!r}")
            arrays[key] = plain
        else:
            numbers[key] = plain
    np.savez_compressed(folder / "data.npz", allow_pickle=False, **arrays)
    _write_json(folder / "result.json", header | {"numbers": numbers})
    _write_json(folder / "table.json", list(rows))
    (folder / "table.md").write_text(markdown_table(rows), encoding="utf-8")


def load_result(folder: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the data of a saved run."""
    folder = Path(folder)
    path = folder / "result.json"
    check(path.is_file(), f"a result folder must hold result.json, found none in {folder}")
    header = json.loads(path.read_text(encoding="utf-8"))
    data = dict(header.pop("numbers"))
    with np.load(folder / "data.npz", allow_pickle=False) as arrays:
        data |= {key: arrays[key] for key in arrays.files}
    return header, data


def draw_saved(folder: str | Path) -> list[Path]:
    """Draw the figures of a saved run from its data; return their paths."""
    header, data = load_result(folder)
    paths = []
    for name, figure in find_experiment(header["experiment"]).draw(data).items():
        path = Path(folder) / f"{name}.png"
        figure.savefig(path, dpi=DOTS)
        paths.append(path)
    return paths


def versions() -> dict[str, str]:
    """The versions a result depends on."""
    import platform
    from importlib.metadata import version

    names = ("involutive", "jax", "jaxlib", "equinox", "flowjax", "optax", "numpy", "arviz")
    return {"python": platform.python_version()} | {name: version(name) for name in names}


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"involutive.experiments.{name}")


def _plain(value: object) -> Any:
    """A JAX or NumPy scalar as a Python number, anything with axes as a NumPy array."""
    if isinstance(value, str | bool | int | float):
        return value
    array = np.asarray(value)
    return array.item() if array.ndim == 0 else array


def _described(config: Config) -> dict[str, Any]:
    """A config as JSON; a value that is no number or text by its `repr`."""
    return json.loads(json.dumps(dataclasses.asdict(config), default=repr))


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

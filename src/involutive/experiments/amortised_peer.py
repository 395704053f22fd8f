"""Our network beside neural posterior estimation by `sbi`, with importance correction for both.

Both are trained on simulated pairs of one family. For new data sets both propose as many draws, and
the effective share of their importance weights is compared; the ranks of the true parameters say
whether sbi's draws are calibrated without correction. `sbi` needs PyTorch: name the interpreter of
an environment that has it.

    python -m venv .venv-sbi && .venv-sbi/bin/pip install sbi==0.27.0
    python -m involutive.experiments.amortised_peer --sbi .venv-sbi/bin/python --family hierarchy
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from involutive._xla.compilation import jit_once
from involutive.amortised.family import Family
from involutive.amortised.layout import MASK, Observed
from involutive.amortised.rows import drawn_pairs, efficiency
from involutive.amortised.settings import AmortiseSettings
from involutive.core.text import first_line, markdown_table
from involutive.experiments import amortised_sbi
from involutive.experiments.amortised import FAMILIES, RANKED, Config, trained, uniform_p

Row = dict[str, float | str]


def compared(config: Config, name: str, pairs: int, python: str, folder: Path | None) -> list[Row]:
    """One row for our network, and one for sbi or why it was not run."""
    family = FAMILIES[name][0]()
    many, seconds = trained(family, config, folder)
    key_pairs, key_new, key_weigh = jr.split(jr.key(config.seed + 2), 3)
    x, data = drawn_pairs(family, key_new, config.sets)
    shares = np.concatenate(
        [
            efficiency(many.estimator, family, part, jr.fold_in(key_weigh, i), AmortiseSettings())
            for i, part in enumerate(_parts(data, config.sets))
        ]
    )
    ours = _row("ours, mixtures" if not config.splines else "ours, splines", seconds, shares)
    seen = drawn_pairs(family, key_pairs, pairs)
    sent = {"x": seen[0], "seen": summaries(family, seen[1]), "new": summaries(family, data)}
    found = _sbi(python, {name: np.asarray(value) for name, value in sent.items()})
    if isinstance(found, str):
        return [ours, {"method": f"sbi: not run ({found})"}]
    log_p = np.asarray(_densities(family, data, jnp.asarray(found["draws"])))
    log_w = np.where(np.isfinite(log_p), log_p - found["log_q"], -np.inf)
    w = np.exp(log_w - log_w.max(axis=0))
    share = w.sum(axis=0) ** 2 / (len(w) * (w**2).sum(axis=0))
    ranks = np.sum(found["draws"][:RANKED] < np.asarray(x)[None], axis=0)
    theirs = _row(f"sbi NPE, {pairs:,} pairs", float(found["seconds"][0]), share)
    return [ours, theirs | {"ranks uniform without correction, p": uniform_p(ranks)}]


def summaries(family: Family, data: Observed) -> Array:
    """What sbi sees of stacked data sets: the features, or their means and the log of how many."""

    def one(observed: Observed) -> Array:
        rows = family.feature_rows(observed)
        if not family.layout.exchangeable:
            return rows
        mask = jnp.asarray(observed[MASK])  # type: ignore[index]
        count = jnp.sum(mask)
        total = jnp.sum(jnp.where(mask[:, None], rows, 0.0), axis=0)
        return jnp.concatenate([total / count, jnp.log(count)[None]])

    return jax.jit(jax.vmap(one))(data)


def _parts(data: Observed, count: int) -> list[Observed]:
    size = AmortiseSettings().measured
    return [jax.tree.map(lambda leaf, i=i: leaf[i : i + size], data) for i in range(0, count, size)]


@jit_once
def _densities(family: Family, data: Observed, draws: Array) -> Array:
    """log p of draws `(draws, sets, dim)` under the posteriors of their data sets."""
    return jax.vmap(lambda x: jax.vmap(lambda v, d: family.density(d)(v))(x, data))(draws)


def _row(method: str, seconds: float, shares: np.ndarray) -> Row:
    return {
        "method": method,
        "training seconds": seconds,
        "effective share, median": float(np.median(shares)),
        "data sets above 0.1": float(np.mean(shares > 0.1)),
    }


def _sbi(python: str, sent: dict[str, np.ndarray]) -> dict[str, np.ndarray] | str:
    """What sbi drew, or why it did not run."""
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder) / "pairs.npz", Path(folder) / "draws.npz"
        np.savez(source, x=sent["x"], seen=sent["seen"], new=sent["new"])
        script = str(Path(amortised_sbi.__file__))
        try:
            ran = subprocess.run(
                [python, script, str(source), str(result)],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        except OSError as error:
            return first_line(error)
        if ran.returncode:
            missing = "No module named" in ran.stderr
            return "not installed" if missing else (ran.stderr.strip().splitlines() or ["?"])[-1]
        with np.load(result) as found:
            return dict(found)


def main(arguments: list[str] | None = None) -> None:
    """Compare on the family named, and print one row per method."""
    known = argparse.ArgumentParser(prog="python -m involutive.experiments.amortised_peer")
    known.add_argument("--sbi", default=sys.executable, help="an interpreter that has sbi")
    known.add_argument("--family", choices=list(FAMILIES), default="hierarchy")
    known.add_argument("--pairs", type=int, default=20_000, help="simulated pairs that sbi sees")
    known.add_argument("--sets", type=int, default=Config.sets)
    known.add_argument("--steps", type=int, default=Config.steps)
    known.add_argument("--splines", type=int, default=0)
    known.add_argument("--out", type=Path, default=None, help="folder of trained networks")
    given = known.parse_args(arguments)
    config = Config(sets=given.sets, steps=given.steps, splines=given.splines)
    rows = compared(config, given.family, given.pairs, given.sbi, given.out)
    sys.stdout.write(markdown_table(rows) + "\n")


if __name__ == "__main__":
    main()

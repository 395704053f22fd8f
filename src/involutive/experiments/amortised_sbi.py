"""Neural posterior estimation by `sbi`, in an environment of its own; it imports nothing of ours.

    python amortised_sbi.py pairs.npz draws.npz

reads simulated pairs (`x`, `seen`) and new data sets (`new`), trains sbi's default neural posterior
estimator on the pairs, and writes draws of it for each new data set with their log density, and
the seconds that both took.
"""

import sys
import time

import numpy as np

DRAWS = 512  # of each data set, as many as our own network's efficiency is measured from


def main(source: str, result: str) -> None:
    """Train on the pairs of one file, and write draws for its data sets to another."""
    import torch  # pyright: ignore[reportMissingImports]
    from sbi.inference import NPE  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)
    torch.manual_seed(0)
    given = np.load(source)
    x, seen, new = (torch.as_tensor(given[name], dtype=torch.float32) for name in given.files)
    began = time.perf_counter()
    inference = NPE(show_progress_bars=False)
    estimator = inference.append_simulations(x, seen).train()
    trained = time.perf_counter()
    with torch.no_grad():
        draws = estimator.sample((DRAWS,), condition=new)  # (draws, sets, dim)
        log_q = estimator.log_prob(draws, condition=new)
    np.savez(
        result, draws=draws.numpy(), log_q=log_q.numpy(),
        seconds=np.array([trained - began, time.perf_counter() - trained]),
    )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])

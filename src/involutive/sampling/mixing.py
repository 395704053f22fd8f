"""A cheap running estimate of the effective sample size, for the line of progress.

The estimate uses batch means: each chain is cut into batches, and the variance of the batch means
around the mean of all chains, times the length of a batch, estimates the variance of a draw times
its autocorrelation time. The batch means of chains in different modes differ, so that the estimate
is small if chains do not mix. The summary after the run uses the rank-normalised estimate instead.
"""

from dataclasses import dataclass, field

import numpy as np

from involutive.sampling.recorder import Recorder

CHAINS, DRAWS, COORDINATES = 64, 2000, 32  # maximum that one estimate reads
LEAST = 8  # draws per chain before the first estimate
GROWTH = 1.2  # ratio of draws per chain between two estimates


@dataclass
class Mixing:
    """Estimates the effective draws of a run as it goes, rarely enough to cost little."""

    seen: int = 0
    share: float | None = field(default=None)

    def metrics(self, recorder: Recorder) -> dict[str, object]:
        """The effective draws so far, and the acceptance rate, which alone does not show mixing."""
        count = recorder.count
        if count >= max(LEAST, GROWTH * self.seen):
            self.seen, self.share = count, ess_share(recorder.so_far())
        acceptance = float(recorder.accepted[:, :count].mean())
        if self.share is None:
            return {}
        effective = round(self.share * count * recorder.accepted.shape[0])
        return {"effective draws (estimate)": effective, "acceptance": round(acceptance, 2)}


def ess_share(positions: np.ndarray) -> float:
    """Effective draws per draw of `(chains, draws, dim)`, the minimum over coordinates and |x|²."""
    part = positions[
        :: -(-len(positions) // CHAINS), -DRAWS:, :: -(-positions.shape[2] // COORDINATES)
    ]
    part = np.asarray(part, np.float64)
    values = np.concatenate([part, np.sum(part**2, axis=2, keepdims=True)], axis=2)
    length = max(int(np.sqrt(values.shape[1])), 1)
    batches = values.shape[1] // length
    values = values[:, -batches * length :]
    means = values.reshape(len(values), batches, length, -1).mean(axis=2)
    spread = values.var(axis=(0, 1))
    noise = length * means.var(axis=(0, 1), ddof=1)
    moved = spread > 0
    if not moved.any() or not np.isfinite(noise).all():
        return 0.0
    return float(np.clip(np.min(spread[moved] / np.maximum(noise[moved], 1e-300)), 0.0, 1.0))

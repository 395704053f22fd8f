"""A run in a process of its own, for tests that kill it, starve it or split it over processes.

    python longrun.py FOLDER SAMPLES [--plain] [--mesh] [--process I --of N --port P]

Prints `ready` when the run begins and, when it ends, `done` with the SHA-256 of its draws.
"""

import argparse
import hashlib
import sys
from typing import Any

import jax
import numpy as np

SETTINGS = {"key": 3, "num_chains": 16, "num_warmup": 8, "block": 4}


def kernel(plain: bool = False) -> Any:
    """A network; or, `plain`, one matrix block, which a new process is quick to begin with."""
    import involutive as inv  # here, because a cluster must be joined before anything is computed

    block = inv.MatrixBlock.random(0, 4) if plain else inv.paper_network(0, 2, 2, scale=4.0)
    return inv.Kernel(inv.targets.mog2(), block, inv.standard_normal(2))


def draws_hash(draws: Any) -> str:
    parts = (draws.positions, draws.log_density, draws.accepted, draws.acceptance_rate)
    return hashlib.sha256(b"".join(np.ascontiguousarray(p).tobytes() for p in parts)).hexdigest()


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("samples", type=int)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--mesh", action="store_true")
    parser.add_argument("--process", type=int)
    parser.add_argument("--of", type=int)
    parser.add_argument("--port")
    return parser.parse_args()


def main() -> None:
    asked = options()
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    if asked.process is not None:
        jax.distributed.initialize(f"127.0.0.1:{asked.port}", asked.of, asked.process)
    mesh = jax.make_mesh((jax.device_count(),), ("chains",)) if asked.mesh else None

    import involutive as inv
    from involutive.sampling import checkpoint, run
    from involutive.sampling import sample as sampling

    # many files, to be killed between
    checkpoint.INTERVAL, run.FIRST_CHUNK, sampling.CHUNK = 0.0, 4, 4
    print("ready", flush=True)
    try:
        draws = inv.sample(
            kernel(asked.plain),
            num_samples=asked.samples,
            checkpoint=asked.folder,
            resume=True,
            mesh=mesh,
            **SETTINGS,
        )
    except inv.InputError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    print("done", draws_hash(draws), flush=True)


if __name__ == "__main__":
    main()

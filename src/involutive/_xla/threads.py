"""Work on the host: matrix products by one thread each.

Symptom: the threads of BLAS wait for each other, busily, and beside XLA's compiler or another
program on the same cores a product takes several times as long. Seen with NumPy's OpenBLAS (and jax
0.10.2): `python -m involutive.bench.xla products` multiplies (4096, 64) by (64, 64) beside two busy
programs in 35.6 ms, and by one thread in 14.2 ms.
"""

from contextlib import AbstractContextManager

from threadpoolctl import ThreadpoolController

_LIBRARIES: list[ThreadpoolController] = []


def one_thread() -> AbstractContextManager[object]:
    """A context in which BLAS uses one thread per product."""
    if not _LIBRARIES:
        _LIBRARIES.append(ThreadpoolController())
    return _LIBRARIES[0].limit(limits=1, user_api="blas")

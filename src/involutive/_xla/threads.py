"""Work on the host: matrix products by one thread each."""

from typing import Any

from threadpoolctl import ThreadpoolController

_LIBRARIES: list[ThreadpoolController] = []


def one_thread() -> Any:
    """A context in which BLAS uses one thread a product.

    Its threads wait for each other, busily: beside XLA's compiler or another program on the same
    cores a product of small matrices then takes a hundred times as long.
    """
    if not _LIBRARIES:
        _LIBRARIES.append(ThreadpoolController())
    return _LIBRARIES[0].limit(limits=1, user_api="blas")

"""The samplers of the benchmark, one file each: `run(task) -> PeerRun`, settings at the top.

A peer gets its documented defaults, the density, and the initial law X = N(0, spread² I). A peer
that is not installed is reported as such.
"""

import importlib
from importlib.util import find_spec
from types import ModuleType

from involutive.core.errors import check

# name: (module, module to import, package, what it is)
PEERS: dict[str, tuple[str, str, str, str]] = {
    "involutive": ("ours", "involutive", "involutive", "this library: `learn`, then `sample`"),
    "a_nice_mc": ("a_nice", "involutive", "involutive", "A-NICE-MC, its training and bootstrap"),
    "nuts_4": ("nuts", "numpyro", "numpyro", "NumPyro NUTS, 4 chains"),
    "nuts_64": ("nuts", "numpyro", "numpyro", "NumPyro NUTS, 64 chains"),
    "nutpie": ("nutpie_", "nutpie", "nutpie", "nutpie, 8 chains"),
    "hmc": ("hmc", "blackjax", "blackjax", "BlackJAX HMC, window adaptation"),
    "smc": ("smc", "blackjax", "blackjax", "BlackJAX adaptive tempered SMC"),
    "nss": ("nss", "blackjax.ns", "blackjax", "BlackJAX nested slice sampling"),
    "flowmc": ("flowmc", "flowMC", "flowMC", "flowMC, spline flow and MALA"),
    "emcee": ("emcee_", "emcee", "emcee", "emcee, differential evolution and snooker moves"),
    "dynesty": ("dynesty_", "dynesty", "dynesty", "dynesty, static nested sampling"),
    "nautilus": ("nautilus_", "nautilus", "nautilus-sampler", "nautilus, importance nested"),
    "ultranest": ("ultranest_", "ultranest", "ultranest", "UltraNest, reactive nested sampling"),
    "jaxns": ("jaxns_", "jaxns", "jaxns", "jaxns, nested sampling in JAX"),
    "tempest": ("tempest_", "tempest", "tempest-sampler", "Tempest, persistent tempering"),
    "eryn": ("eryn_", "eryn", "eryn", "eryn, parallel tempering"),
    "pocomc": ("pocomc_", "pocomc", "pocomc", "pocoMC, preconditioned SMC"),
}
GRADIENT_FREE = ("nss", "emcee", "dynesty", "nautilus", "ultranest", "jaxns", "tempest", "eryn",
                 "pocomc")  # fmt: skip


def installed(name: str) -> bool:
    """Whether the package a peer needs can be found."""
    try:
        return find_spec(PEERS[check_peer(name)][1]) is not None
    except ModuleNotFoundError:  # the parent of a submodule
        return False


def load(name: str) -> ModuleType:
    """Import a peer's module."""
    return importlib.import_module(f"{__name__}.{PEERS[check_peer(name)][0]}")


def check_peer(name: str) -> str:
    """Return the name if it is one of the peers'."""
    check(name in PEERS, f"a peer must be one of {', '.join(PEERS)}, got {name!r}")
    return name

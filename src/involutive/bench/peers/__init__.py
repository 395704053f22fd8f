"""The samplers of the benchmark, one file each: `run(task) -> PeerRun`, settings at the top.

A peer gets its documented defaults, the density, and the initial law N(0, 3² I). A peer that is
not installed is reported as such.
"""

import importlib
from importlib.util import find_spec
from typing import Any

from involutive.core.errors import check

# name: (module, package it needs, what it is)
PEERS: dict[str, tuple[str, str, str]] = {
    "involutive": ("ours", "involutive", "this library: `learn`, then `sample`"),
    "a_nice_mc": ("a_nice", "involutive", "A-NICE-MC, its own training and bootstrap"),
    "nuts_4": ("nuts", "numpyro", "NumPyro NUTS, 4 chains"),
    "nuts_64": ("nuts", "numpyro", "NumPyro NUTS, 64 chains"),
    "hmc": ("hmc", "blackjax", "BlackJAX HMC, window adaptation"),
    "smc": ("smc", "blackjax", "BlackJAX adaptive tempered SMC"),
    "flowmc": ("flowmc", "flowMC", "flowMC, spline flow and MALA"),
    "emcee": ("emcee_", "emcee", "emcee, differential evolution and snooker moves"),
    "dynesty": ("dynesty_", "dynesty", "dynesty, static nested sampling"),
    "eryn": ("eryn_", "eryn", "eryn, parallel tempering"),
    "pocomc": ("pocomc_", "pocomc", "pocoMC, preconditioned SMC"),
}


def installed(name: str) -> bool:
    """Whether the package a peer needs can be found."""
    return find_spec(PEERS[check_peer(name)][1]) is not None


def load(name: str) -> Any:
    """Import a peer's module."""
    return importlib.import_module(f"{__name__}.{PEERS[check_peer(name)][0]}")


def check_peer(name: str) -> str:
    """Return the name if it is one of the peers'."""
    check(name in PEERS, f"a peer must be one of {', '.join(PEERS)}, got {name!r}")
    return name

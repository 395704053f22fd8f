"""Priors: distributions of declared parameters, for `Parameters(mu=inv.Normal(0, 5), ...)`.

Each is a `Parameter` with a support, the sum of the log densities of its elements, and draws. The
distributions of NumPyro, FlowJAX and SciPy are taken in their place (`foreign.py`).
"""

from involutive.targets.priors.bounded import Beta, Dirichlet, Uniform, VonMises
from involutive.targets.priors.half import Exponential, Gamma, HalfCauchy, HalfNormal, LogNormal
from involutive.targets.priors.line import Cauchy, Normal, StudentT

__all__ = [
    "Beta",
    "Cauchy",
    "Dirichlet",
    "Exponential",
    "Gamma",
    "HalfCauchy",
    "HalfNormal",
    "LogNormal",
    "Normal",
    "StudentT",
    "Uniform",
    "VonMises",
]

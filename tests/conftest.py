"""What every test runs under: float64, no rank promotion, no key used twice, cached compilation."""

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.random as jr
import jaxtyping
import numpy as np
import pytest
from jaxtyping import PRNGKeyArray

import table

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)

jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".cache" / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
# A bound on the size also makes JAX lock the directory, which parallel workers need.
jax.config.update("jax_compilation_cache_max_size", 2 * 1024**3)

# The fast suite is mostly compilation of code that runs once; with these it takes a quarter of it.
QUICK_TO_COMPILE = ["--xla_backend_optimization_level=0"]
if jax.__version_info__ < (0, 11):  # later releases end the process at a flag they do not know
    QUICK_TO_COMPILE.append("--xla_cpu_use_fusion_emitters=false")


def pytest_configure(config: pytest.Config) -> None:
    """Compile quickly rather than well, except for the deep suite; before JAX has a backend."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # run in a shell's background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # as the processes of tests expect
    flags = os.environ.get("XLA_FLAGS", "").split()
    if "not deep" in config.option.markexpr:
        flags += [flag for flag in QUICK_TO_COMPILE if flag not in flags]
        os.environ["XLA_FLAGS"] = " ".join(flags)


# Of the deep suite, the tests of minutes: begun first, so that its workers end together.
LONGEST = (
    "test_a_killed_run_resumes", "test_eight_schools", "test_simulation_based_calibration",
    "supports_every_claim", "runs_as_it_stands", "test_the_experiment_shows_what_it_claims",
    "test_hierarchical", "free_labels", "test_supports", "test_gp_regression",
    "from_a_million_starts", "test_ten_million_points", "test_learn.py", "test_assess.py",
)  # fmt: skip


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest tests of the deep suite first, in that order."""
    if "not deep" in config.option.markexpr:
        return

    def place(item: pytest.Item) -> int:
        return next((i for i, name in enumerate(LONGEST) if name in item.nodeid), len(LONGEST))

    items.sort(key=place)


_tests_run = itertools.count(1)


@pytest.fixture(autouse=True)
def room_for_programs() -> None:
    """Forget compiled programs now and then: a process without memory maps left dies silently."""
    if next(_tests_run) % 10 == 0:
        from involutive._xla.compilation import make_room  # here: types are checked from then on

        make_room()


@pytest.fixture
def getkey() -> Callable[[], PRNGKeyArray]:
    """A function that gives a fresh key at each call; the same keys in the same order every run."""
    calls = iter(range(2**31))
    return lambda: jr.fold_in(jr.key(20_240), next(calls))


@pytest.fixture
def foreign_keys() -> Iterator[None]:
    """Let code of other libraries use a key twice: NumPyro does when it looks for a start."""
    with jax.debug_key_reuse(False):
        yield


@pytest.fixture
def foreign_ranks() -> Iterator[None]:
    """Let code of other libraries promote ranks: FlowJAX's masks do."""
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture
def foreign_style() -> Iterator[None]:
    """Both of these, for chains of such models: they run in threads, so it is set globally."""
    jax.config.update("jax_debug_key_reuse", False)
    jax.config.update("jax_numpy_rank_promotion", "allow")
    yield
    jax.config.update("jax_debug_key_reuse", True)
    jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def as_users_run() -> Iterator[None]:
    """Switch the test hook's type checks off, so that an error is the one a user meets."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


# ── The reliability table ───────────────────────────────────────────────────────────────────────


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tie a test to its row of the table before it runs, so that a failure shows there."""
    item.user_properties.extend(("row", mark.args[0]) for mark in item.iter_markers("row"))


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Callable[..., None]:
    """A function `record(row, name=figure)`; `least` and `most` figures of a row are joined so."""

    def note(row: int, **figures: float) -> None:
        for name, value in figures.items():
            value = value.item() if isinstance(value, np.generic) else value  # workers send plain
            request.node.user_properties.append(("figure", [row, name.replace("_", " "), value]))

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """End the deep suite with the table of targets against what was seen."""
    if "not deep" in terminalreporter.config.option.markexpr:
        return
    kinds = ("passed", "failed", "skipped", "error")
    reports = [r for kind in kinds for r in terminalreporter.stats.get(kind, [])]
    terminalreporter.section("reliability")
    for line in table.lines(r for r in reports if r.when == "call" or not r.passed):
        terminalreporter.write_line(line)

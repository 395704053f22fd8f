"""Keys and imports: small promises that hold everywhere."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import involutive as inv
from involutive.core.keys import as_key, generator, split


@pytest.mark.parametrize("seed", [5, np.int64(5), np.array(5), jnp.array(5), jr.key(5)])
def test_a_seed_of_any_kind_is_the_same_key(seed):
    assert jr.key_data(as_key(seed)).tolist() == jr.key_data(jr.key(5)).tolist()


def test_a_raw_key_is_taken():
    with jax.debug_key_reuse(False):
        raw = jr.PRNGKey(5)
    assert jr.key_data(as_key(raw)).tolist() == jr.key_data(jr.key(5)).tolist()


@pytest.mark.parametrize("bad", [None, True, 0.5, "0", jnp.zeros(3)])
def test_anything_else_is_refused(bad):
    with pytest.raises(inv.InputError, match=r"key must be an int seed or a JAX key, got .*key=0"):
        as_key(bad)


def test_keys_are_watched_in_this_suite():
    """A key used twice is an error here, so every test above and below shows that none is."""
    assert jax.config.jax_debug_key_reuse
    key = jr.key(0)
    jr.normal(key)
    with pytest.raises(Exception, match=r"(?i)reuse|consumed|used more than once"):
        jr.uniform(key)


@pytest.mark.parametrize("first", [lambda key: split(key, 2), generator])
@pytest.mark.parametrize("second", [lambda key: split(key, 3), generator, jr.split, jr.normal])
def test_keys_split_or_read_on_the_host_are_watched_too(first, second):
    """JAX's checker takes `fold_in` for a source, so `keys.split` spends its key itself."""
    key = jr.key(0)
    first(key)
    with pytest.raises(Exception, match=r"(?i)reuse|consumed|used more than once"):
        second(key)


def test_a_split_is_the_same_watched_or_not():
    watched = [jr.key_data(key).tolist() for key in split(jr.key(3), 2)]
    with jax.debug_key_reuse(False):
        assert watched == [jr.key_data(key).tolist() for key in split(jr.key(3), 2)]


def test_float64_and_strict_ranks_are_on_in_this_suite():
    assert jnp.zeros(1).dtype == jnp.float64
    with pytest.raises(ValueError, match="rank_promotion"):
        jnp.zeros((2, 3)) + jnp.zeros(3)


def test_import_brings_no_plotting_ppl_or_cli_library():
    code = (
        "import sys, involutive\n"
        "assert 'jax' not in sys.modules  # until a name is used\n"
        "involutive.Target\n"
        "heavy = {'matplotlib', 'arviz', 'numpyro', 'pymc', 'typer', 'rich', 'xarray', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.strip() == "[]", found.stderr


def test_every_public_name_exists():
    for name in inv.__all__:
        assert hasattr(inv, name), name

"""Saved kernels come back as they were, and nothing else comes back at all."""

import inspect
import json
import warnings
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flowjax import bijections as fb
from flowjax.distributions import (
    AbstractDistribution,
    MultivariateNormal,
    Normal,
    StandardNormal,
    Transformed,
)
from flowjax.flows import masked_autoregressive_flow, triangular_spline_flow
from jaxtyping import Array
from paramax import unwrap

import involutive as inv
from involutive.bijections.couplings import AdditiveCoupling
from involutive.storage import format as tensors
from involutive.storage.codec import Encoder, _names
from involutive.storage.format import read_tensors, write_tensors
from involutive.targets.parameters import Initial
from zoo import ALL, skewed

GOLDEN = Path(__file__).parents[1] / "golden"


def described(kernel: Any) -> tuple[str, dict[str, np.ndarray]]:
    encode = Encoder()
    return json.dumps(encode(kernel), sort_keys=True), encode.arrays


def returned(kernel: inv.AbstractKernel, path: Path) -> inv.AbstractKernel:
    """Save, load, and require the same modules with the same bits."""
    inv.save(path, kernel)
    found = inv.load(path, kernel.target)
    (tree, arrays), (loaded_tree, loaded) = described(kernel), described(found)
    assert tree == loaded_tree
    assert arrays.keys() == loaded.keys()
    for name, array in arrays.items():
        assert array.dtype == loaded[name].dtype, name
        np.testing.assert_array_equal(array, loaded[name], err_msg=name)
    return found


def around(f: inv.AbstractInvolution, dim: int = 3) -> inv.Kernel:
    return inv.Kernel(skewed(dim), f, inv.standard_normal(f.size - dim))


@eqx.filter_jit
def _moved(f: inv.AbstractInvolution, z: Array) -> Array:
    z, log_det = f(z)
    return jnp.append(z, log_det)


def moved(kernel: Any, z: Array) -> Array:
    """f(z) with its log-determinant, compiled, as the chains see it."""
    return _moved(unwrap(kernel.involution), z)


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_every_involution_returns(make, getkey, tmp_path):
    returned(around(make(getkey())), tmp_path / "k.inv")


BIJECTIONS = {
    "triangular": lambda: fb.TriangularAffine(jnp.ones(2), jnp.eye(2) + jnp.tril(jnp.ones((2, 2)))),
    "triangular-upper": lambda: fb.TriangularAffine(jnp.ones(2), jnp.eye(2), lower=False),
    "spline": lambda: fb.Vmap(fb.RationalQuadraticSpline(knots=4, interval=3), axis_size=2),
    "spline-stack": lambda: fb.Vmap(
        eqx.filter_vmap(
            lambda: fb.RationalQuadraticSpline(knots=3, interval=2, min_derivative=0.05),
            axis_size=2,
        )(),
        in_axes=eqx.if_array(0),
    ),
    "coupling": lambda: fb.Coupling(
        jr.key(0),
        transformer=fb.RationalQuadraticSpline(knots=4, interval=3),
        untransformed_dim=1,
        dim=2,
        nn_width=4,
        nn_depth=1,
        nn_activation=jax.nn.tanh,
    ),
    "householder": lambda: fb.Householder(jnp.arange(1.0, 3.0)),
    "scan": lambda: fb.Scan(eqx.filter_vmap(fb.Affine)(jnp.ones((3, 2)))),
    "concatenate": lambda: fb.Concatenate([fb.Scale(jnp.ones(1)), fb.Loc(jnp.ones(1))]),
    "leaky": lambda: fb.Invert(fb.LeakyTanh(1.5, (2,))),
    "masked-autoregressive": lambda: (
        masked_autoregressive_flow(
            jr.key(2), base_dist=Normal(jnp.zeros(2)), flow_layers=2, nn_width=3, nn_depth=1
        ).bijection
    ),
    "triangular-spline": lambda: (
        triangular_spline_flow(
            jr.key(3), base_dist=Normal(jnp.zeros(2)), flow_layers=2, knots=3
        ).bijection
    ),
    "flip": lambda: fb.Chain([fb.Flip((2,)), fb.Identity((2,)), fb.Permute(jnp.array([1, 0]))]),
}


@pytest.mark.usefixtures("foreign_ranks")
@pytest.mark.parametrize("make", BIJECTIONS.values(), ids=BIJECTIONS)
def test_every_bijection_returns(make, tmp_path):
    kernel = around(inv.FunctionBlock(make()), 2)
    found = returned(kernel, tmp_path / "k.inv")
    z = jnp.asarray([0.3, -1.2, 0.7, 1.9])
    np.testing.assert_array_equal(moved(kernel, z), moved(found, z))


@pytest.mark.usefixtures("foreign_ranks")
def test_functions_inside_flowjax_load_from_files_of_before():
    """`closures.inv` was written when they were still known by their private names."""
    parts = [
        fb.TriangularAffine(jnp.ones(2), jnp.array([[1.0, 0.3], [0.2, 0.7]]), lower=False),
        fb.Householder(jnp.array([1.0, 2.0])),
        fb.Coupling(
            jr.key(0),
            transformer=fb.RationalQuadraticSpline(knots=3, interval=3, min_derivative=0.05),
            untransformed_dim=1,
            dim=2,
            nn_width=2,
            nn_depth=1,
            nn_activation=jax.nn.tanh,
        ),
        masked_autoregressive_flow(
            jr.key(1), base_dist=Normal(jnp.zeros(2)), flow_layers=2, nn_width=3, nn_depth=1
        ).bijection,
    ]
    target = inv.targets.mog2()
    expected = inv.Kernel(target, inv.FunctionBlock(fb.Chain(parts)), inv.standard_normal(2))
    found = inv.load(GOLDEN / "closures.inv", target, inv.Kernel)
    z = jnp.asarray([0.3, -1.2, 0.7, 1.9])
    # two programs, which a compiler that does not optimise rounds in different places
    np.testing.assert_allclose(moved(found, z), moved(expected, z), rtol=1e-12)


def test_a_function_put_where_flowjax_has_its_own_is_refused(tmp_path):
    spline = fb.RationalQuadraticSpline(knots=4, interval=3)
    other = eqx.tree_at(lambda s: s.derivatives.fn, spline, lambda x: 2 * jax.nn.softplus(x))
    kernel = around(inv.FunctionBlock(fb.Vmap(other, axis_size=2)), 2)
    with pytest.raises(inv.InputError, match=r"<lambda> at .*derivatives.fn; call .*register"):
        inv.save(tmp_path / "k.inv", kernel)


def modules(cls: type = eqx.Module) -> set[type]:
    return {cls}.union(*(modules(sub) for sub in cls.__subclasses__()))


def test_every_module_that_can_be_part_of_a_kernel_is_registered():
    """One way to become loadable: `register`. A new class without it fails here."""
    kinds = (inv.AbstractKernel, inv.AbstractInvolution, fb.AbstractBijection, AbstractDistribution)
    ours = [
        cls
        for cls in modules()
        if cls.__module__.startswith("involutive.")
        and issubclass(cls, kinds)
        and not inspect.isabstract(cls)
        and cls is not Initial  # a file says that it is the target's, which makes it anew
    ]
    assert len(ours) >= 18
    assert [cls.__name__ for cls in ours if id(cls) not in _names] == []


def test_the_class_a_file_must_hold(tmp_path):
    path = tmp_path / "k.inv"
    inv.save(path, inv.random_walk(skewed(2), 1.0))
    assert type(inv.load(path, skewed(2), inv.Kernel)) is inv.Kernel
    with pytest.raises(inv.InputError, match=r"k.inv must hold a Mixture, got a Kernel"):
        inv.load(path, skewed(2), inv.Mixture)


def test_a_file_cannot_call_a_class_or_take_a_function_for_one(tmp_path):
    path = tmp_path / "k.inv"
    inv.save(path, inv.random_walk(skewed(2), 1.0))
    for node in (
        {"$": "function", "name": "Kernel"},
        {"$": "object", "name": "jax.nn.relu", "fields": {}},
        {"$": "closure", "name": "jax.nn.relu", "fields": {}},
    ):
        arrays, header = read_tensors(path)
        header["tree"]["fields"]["initial"] = node
        write_tensors(tmp_path / "bad.inv", arrays, header)
        with pytest.raises(inv.InputError, match=r"must be a (function|class)"):
            inv.load(tmp_path / "bad.inv", skewed(2))


LAWS = {
    "normal": lambda: Normal(jnp.ones(2), 2 * jnp.ones(2)),
    "mixture": lambda: inv.GaussianMixture(
        jnp.array([0.3, 0.7]), jnp.ones((2, 2)), jnp.stack([jnp.eye(2)] * 2)
    ),
    "correlated": lambda: MultivariateNormal(jnp.zeros(2), jnp.eye(2) + 0.2),
    "transformed": lambda: Transformed(StandardNormal((2,)), fb.Affine(jnp.ones(2))),
}


@pytest.mark.parametrize("make", LAWS.values(), ids=LAWS)
def test_every_law_returns(make, tmp_path):
    law = make()
    swap = inv.PermutationBlock.swap(4)
    returned(inv.Kernel(skewed(2), swap, law, initial=law, guard=1e-6), tmp_path / "k.inv")


def test_mixtures_and_cycles_return_and_step_alike(tmp_path):
    target = skewed(2)
    parts = [inv.hmc(target, 0.1, 3), inv.random_walk(target, jnp.array([1.0, 2.0]))]
    for kernel in (inv.Mixture(parts, [0.3, 0.7]), inv.Cycle(parts)):
        found = returned(kernel, tmp_path / "k.inv")
        state = kernel.init(jnp.ones(2))
        then, _ = eqx.filter_jit(kernel.step)(jr.key(3), state)
        now, _ = eqx.filter_jit(found.step)(jr.key(3), state)
        np.testing.assert_array_equal(then.position, now.position)


class Doubling(eqx.Module):
    """A researcher's own network."""

    factor: Array

    def __call__(self, x: Array) -> Array:
        return self.factor * x


def test_own_classes_must_be_registered(tmp_path):
    net = Doubling(jnp.asarray(2.0))
    kernel = around(inv.FunctionBlock(AdditiveCoupling(net, 2, 1)), 2)
    with pytest.raises(
        inv.InputError, match=r"class Doubling at involution.g.net; call involutive.register"
    ):
        inv.save(tmp_path / "k.inv", kernel)
    inv.register(Doubling, name="tests.Doubling")
    returned(kernel, tmp_path / "k.inv")


def test_functions_must_be_registered(tmp_path):
    kernel = around(inv.FunctionBlock(AdditiveCoupling(jnp.sort, 2, 1)), 2)
    with pytest.raises(inv.InputError, match=r"got the function sort at involution.g.net"):
        inv.save(tmp_path / "k.inv", kernel)


def test_a_name_is_registered_once():
    with pytest.raises(
        inv.InputError, match="the name Kernel is already registered for involutive"
    ):
        inv.register(Doubling, name="Kernel")
    with pytest.raises(inv.InputError, match="needs a name"):
        inv.register(lambda x: x)


def test_another_density_is_warned_about(tmp_path):
    inv.save(tmp_path / "k.inv", inv.random_walk(skewed(2), 1.0))
    other = inv.Target(lambda x: -jnp.sum(x**4), 2, name="quartic")
    with pytest.warns(
        UserWarning,
        match=r"another density \(skewed\) than quartic: log density .* then and .* now",
    ):
        inv.load(tmp_path / "k.inv", other)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inv.load(tmp_path / "k.inv", skewed(2))


def test_two_densities_in_one_kernel_are_refused(tmp_path):
    surrogate = inv.Target(lambda x: -jnp.sum(x**4), 2)
    flow = inv.hmc(surrogate, 0.1, 2).involution
    kernel = inv.Kernel(skewed(2), flow, inv.standard_normal(2))
    with pytest.raises(inv.InputError, match="must hold one density to be saved, got two"):
        inv.save(tmp_path / "k.inv", kernel)


def test_paths_and_kinds(tmp_path):
    kernel = inv.random_walk(skewed(2), 1.0)
    path = tmp_path / "k.inv"
    with pytest.raises(inv.InputError, match="there is no file"):
        inv.load(path, skewed(2))
    with pytest.raises(inv.InputError, match=r"the folder .* does not exist; make it first"):
        inv.save(tmp_path / "no" / "k.inv", kernel)
    with pytest.raises(inv.InputError, match="must name a file, got the folder"):
        inv.save(tmp_path, kernel)
    with pytest.raises(inv.InputError, match="must name a file, got the folder"):
        inv.load(tmp_path, skewed(2))
    inv.save(path, kernel)
    with pytest.raises(inv.InputError, match="of dimension 2, got 3"):
        inv.load(path, skewed(3))
    write_tensors(path, {}, {"kind": "state"})
    with pytest.raises(inv.InputError, match="must hold a kernel, got a file of kind state"):
        inv.load(path, skewed(2))


def test_other_versions_are_refused_by_name(tmp_path, monkeypatch):
    path = tmp_path / "k.inv"
    for version in (0, 2):
        monkeypatch.setattr(tensors, "VERSION", version)
        write_tensors(path, {}, {})
        monkeypatch.undo()
        with pytest.raises(
            inv.InputError, match=f"format version {version}, and this involutive reads version 1"
        ):
            read_tensors(path)


def test_the_content_before_is_kept(tmp_path):
    path = tmp_path / "a.inv"
    write_tensors(path, {"x": np.arange(3.0)}, {"n": 1})
    write_tensors(path, {"x": np.arange(4.0)}, {"n": 2})
    assert read_tensors(path)[1] == {"n": 2}
    assert read_tensors(tmp_path / "a.inv.bak")[1] == {"n": 1}
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        inv.InputError, match=r"is damaged: .*the version before it is kept as .*a.inv.bak"
    ):
        read_tensors(path)
    with pytest.warns(UserWarning, match="using the previous good file"):
        assert read_tensors(path, fall_back=True)[1] == {"n": 1}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.inv", "a.inv.bak"]


def test_only_numbers_are_written(tmp_path):
    for value in (np.array([object()]), np.array(["x"]), np.array([1j])):
        with pytest.raises(inv.InputError, match="array x must hold real numbers or booleans"):
            write_tensors(tmp_path / "a.inv", {"x": value}, {})


def rewritten(path: Path, change: Any) -> None:
    """Change a saved file and sign it again, as someone who means harm can."""
    arrays, header = read_tensors(path)
    change(arrays, header)
    write_tensors(path, arrays, header)


def swap_kernel(path: Path) -> None:
    inv.save(path, inv.Kernel(skewed(2), inv.PermutationBlock.swap(4), inv.standard_normal(2)))


def set_sigma(arrays: dict, header: dict) -> None:
    arrays["involution.sigma"] = np.array([1, 2, 3, 0])


def set_class(arrays: dict, header: dict) -> None:
    header["tree"]["fields"]["involution"]["name"] = "os.system"


def set_function(arrays: dict, header: dict) -> None:
    header["tree"]["fields"]["initial"] = {"$": "function", "name": "builtins.eval"}


def set_kind(arrays: dict, header: dict) -> None:
    header["tree"]["fields"]["initial"] = {"$": "_class__", "name": "x"}


def drop_field(arrays: dict, header: dict) -> None:
    del header["tree"]["fields"]["involution"]["fields"]["sigma"]


def drop_array(arrays: dict, header: dict) -> None:
    del arrays["involution.sigma"]


def wrong_size(arrays: dict, header: dict) -> None:
    arrays["involution.sigma"] = np.array([1, 0])


def deep(arrays: dict, header: dict) -> None:
    node: Any = None
    for _ in range(400):
        node = {"$": "tuple", "items": [node]}
    header["tree"]["fields"]["initial"] = node


def test_matrix_blocks_of_before_load_as_blocks_that_turn(tmp_path):
    """Files from when every block turned w towards v name v and w alone."""
    block = inv.MatrixBlock.trainable([1.0, 0.0, 0.0, 0.0], [0.01, 1.0, 0.0, 0.0])
    kernel = inv.Kernel(skewed(2), block, inv.standard_normal(2))
    path, z = tmp_path / "k.inv", jnp.asarray([0.3, -1.2, 0.7, 1.9])
    inv.save(path, kernel)
    rewritten(path, lambda _, header: header["tree"]["fields"]["involution"]["fields"].pop("turns"))
    found = inv.load(path, skewed(2), inv.Kernel)
    np.testing.assert_array_equal(moved(found, z), moved(kernel, z))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_sigma, "sigma must be its own inverse"),
        (set_class, "the class 'os.system' is not registered here"),
        (set_function, "the function 'builtins.eval' is not registered here"),
        (set_kind, "unknown kind of node '_class__'"),
        (drop_field, r"fields of PermutationBlock differ in \['sigma'\]"),
        (drop_array, "involution.sigma"),
        (wrong_size, "must act on state and auxiliary together"),
        (deep, "does not describe a kernel that works"),
    ],
)
def test_a_signed_but_wrong_description_is_refused(change, words, tmp_path):
    path = tmp_path / "k.inv"
    swap_kernel(path)
    rewritten(path, change)
    with pytest.raises(inv.InputError, match=words):
        inv.load(path, skewed(2))

"""Every example in a docstring runs and says what it promises."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import pytest

import l2caf

# These stand on extras that a plain install does not have; their own tests cover them.
ON_EXTRAS = ("l2caf.web", "l2caf.scale")
MODULES = [
    module.name
    for module in pkgutil.walk_packages(l2caf.__path__, "l2caf.")
    if not module.name.startswith(ON_EXTRAS) and not module.name.endswith("__main__")
]


@pytest.mark.parametrize("name", l2caf.__all__)
def test_every_public_name_has_an_example(name: str) -> None:
    assert ">>> " in (inspect.getdoc(getattr(l2caf, name)) or "")


# What nearly everybody calls on what they got; the other methods are for those who write parts of their own.
CALLED = {
    l2caf.Heatmap: ["boxes", "numpy", "on_photograph", "overlay", "plot", "save"],
    l2caf.Model: ["explain"],
}


@pytest.mark.parametrize(("owner", "name"), [(owner, name) for owner, names in CALLED.items() for name in names])
def test_every_method_that_people_call_has_an_example(owner: type, name: str) -> None:
    assert ">>> " in (inspect.getdoc(getattr(owner, name)) or "")


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    outcome = doctest.testmod(
        importlib.import_module(name), optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    assert outcome.failed == 0

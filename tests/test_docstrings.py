"""Docstrings: each public class and function has one, and those of the public API name each argument."""

import ast
import contextlib
import importlib
import inspect
import pkgutil
import re

import pytest

import dpbeam

#: Names that say all there is to say: of a PTransform, whose class is described, and of a command's module.
PLAIN = {"expand", "make_parser"}
#: Classes whose methods are described elsewhere: those of `Files` by path, and those that Beam calls.
ELSEWHERE = {"FileSystems", "SideInputs"}


def modules():
    for found in pkgutil.walk_packages(dpbeam.__path__, "dpbeam."):
        if not re.search(r"\.__main__|\.testing", found.name):
            with contextlib.suppress(ImportError):  # what an extra brings is missing
                yield importlib.import_module(found.name)


def functions(owner):
    """(name, function or property) of the public ones that a class itself defines."""
    for name, value in vars(owner).items():
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if inspect.isfunction(function) and function.__qualname__ == f"{owner.__qualname__}.{name}":
            yield name, getattr(owner, name)


def undescribed(module):
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        described = value.__doc__ and not value.__doc__.startswith(f"{name}(")  # as dataclass writes one
        if (inspect.isclass(value) or inspect.isfunction(value)) and name not in PLAIN and not described:
            yield f"{module.__name__}.{name}"
        if inspect.isclass(value) and name not in ELSEWHERE:
            for own, function in functions(value):
                if not own.startswith("_") and own not in PLAIN and not inspect.getdoc(function):
                    yield f"{module.__name__}.{name}.{own}"


def test_each_public_class_and_function_has_a_docstring():
    """Its own, or that of what it overrides."""
    assert [name for module in modules() for name in undescribed(module)] == []


def described(value) -> str:
    """A docstring, with those of public names to which it sends the reader for arguments."""
    own = inspect.getdoc(value) or ""
    others = re.findall(r"see `(?:dpbeam\.)?(\w+)`", own)
    return "\n".join([own, *(described(getattr(dpbeam, name)) for name in others if hasattr(dpbeam, name))])


def test_type_checkers_and_the_site_find_each_public_name():
    """They read the imports of `dpbeam/__init__.py`, which are not made when it runs."""
    nodes = ast.walk(ast.parse(inspect.getsource(dpbeam)))
    imported = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert set(dpbeam.__all__) - imported == set()


CALLED = [name for name in dpbeam.__all__ if callable(getattr(dpbeam, name)) and not name.endswith("Error")]


@pytest.mark.parametrize("name", CALLED)
def test_each_argument_of_the_public_api_is_described(name):
    value = getattr(dpbeam, name)
    text = "\n".join(described(one) for one in getattr(value, "__mro__", [value]) if one is not object)
    kinds = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
    arguments = [one.name for one in inspect.signature(value).parameters.values() if one.kind not in kinds]
    assert arguments and [one for one in arguments if not re.search(rf"\b{one}\b", text)] == []

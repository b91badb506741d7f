"""What Python code of this project depends on: modules of the package, and sources of its extension.

Imports are followed name by name: `from penstock import moe` depends on the module that defines moe, and
not on everything that the package's __init__.py imports. Of the extension module penstock._core, code
depends on the sources that bind the names it uses.
"""

import ast
from functools import cache

PACKAGE, FOLDER, BINDINGS = "penstock", "python", "python/src"
EXTENSION = f"{PACKAGE}._core"
# These list all parts of the extension module, so they change whenever one is added.
LISTS = ("module.cpp", "bindings.h")


def needed(root, path):
    """The files that a Python file uses directly."""
    names = names_used(root, path)
    for module, name in names:
        if module == EXTENSION:
            yield from binding(root, name)
        else:
            yield from defining(root, module, name)


def defining(root, module, name):
    """The file that defines `name` of a module, or what it takes from the extension module."""
    if f"{module}.{name}" == EXTENSION:
        return  # used by attribute
    submodule = file_of(root, f"{module}.{name}")
    if submodule is not None:
        yield submodule
        return
    path = file_of(root, module)
    if path is None:
        return  # of another package
    if path.name == "__init__.py":
        for source, imported, known_as in imports(root, path):
            if known_as == name and imported is not None:
                yield from (binding(root, imported) if source == EXTENSION
                            else defining(root, source, imported))
                return
    yield path


def names_used(root, path):
    """Pairs of a module and a name in it: all that are imported, or used as module.name."""
    modules = {}  # by the name that the file gives to them
    for module, name, known_as in imports(root, path):
        whole = module if name is None else f"{module}.{name}"
        modules[known_as] = whole
        if name is not None:
            yield module, name
        elif file_of(root, whole) is not None and whole != PACKAGE:
            yield tuple(whole.rsplit(".", 1))
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module == EXTENSION or module is not None and file_of(root, module) is not None:
                yield module, node.attr


def imports(root, path):
    """(module, name or None, the name it is known as), of every import of this package."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom):
            module = absolute(root, path, node)
            if module is not None and module.split(".")[0] == PACKAGE:
                for each in node.names:
                    yield module, each.name, each.asname or each.name
        elif isinstance(node, ast.Import):
            for each in node.names:
                if each.name.split(".")[0] == PACKAGE:
                    yield each.name, None, each.asname or each.name


def absolute(root, path, node):
    """The full name of the module that a `from` names."""
    if node.level == 0:
        return node.module
    if not path.is_relative_to(root / FOLDER):
        return None
    parts = path.relative_to(root / FOLDER).with_suffix("").parts
    return ".".join([*parts[:-node.level], *([node.module] if node.module else [])])


def file_of(root, module):
    place = root.joinpath(FOLDER, *module.split("."))
    for path in (place.with_suffix(".py"), place / "__init__.py"):
        if path.is_file():
            return path
    return None


def binding(root, name):
    """The sources that bind a name: those with it as a string."""
    for path, text in binding_sources(root / BINDINGS):
        if f'"{name}"' in text:
            yield path


@cache
def binding_sources(folder):
    return [(path, path.read_text()) for path in sorted(folder.glob("*.cpp"))
            if path.name not in LISTS]


@cache
def tree_of(path):
    return ast.parse(path.read_text())

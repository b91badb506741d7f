"""The benchmarks of this project: what each one runs, and which sources its results depend on.

A results file holds `sources`, a hash of the code that was measured. Comments, docstrings and layout
do not count, so that results stay current when only the wording changes.
"""

import ast
import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import python_sources

ROOT = Path(__file__).resolve().parent.parent
BIN = "build/gpu/bin"
HARNESS = "python/penstock/bench"
LADDERS = ("host", "experts", "copy", "gemm", "resample", "attention", "decode", "moe")
COUNTED = ("attention", "decode")  # ladders whose DRAM traffic is counted where there is ncu
CASES_PER_PART = 6  # of an operator: with all peers and counters, about two minutes
LARGER_PARTS = {"attention": 12}  # whose cases are shorter
# What ncu profiles for NAME_profiles: kernels and peers of an operator, and cases.
PROFILED = {
    "attention": (("best", "FlashAttention"), ("d128, 4096, full", "d128, 4096, causal")),
    "resample": (("baseline", "best"), tuple(f"{size}, regular times" for size in (
        "tiny", "small", "large", "very-long"))),
}
CUB_LIBRARY = f"{BIN}/libpenstock_cub.so"  # CUB as a peer of these operators
WITH_CUB = ("copy", "transform")
ON_CPU = ("attention_cpu", "moe_cpu")  # operators that are measured on the CPU, whatever the machine has

C_SUFFIXES = (".h", ".cuh", ".cpp", ".cu", ".inc")
# A C++ comment, or a string or character literal, in which // is no comment.
C_TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)


@dataclass(frozen=True)
class Benchmark:
    """One results file, bench/results/NAME.json."""

    name: str
    kind: str  # program, operator, script, ladder or profiles
    start: tuple[str, ...]  # files and folders from which its sources are found
    packages: tuple[str, ...] = ()  # Python packages that it needs
    programs: tuple[str, ...] = ()  # programs that it needs on PATH
    variables: tuple[str, ...] = ()  # environment variables that it needs

    def sources_hash(self, root=ROOT):
        digest = hashlib.sha256()
        for path in sorted(closure(root, self.start)):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0")
            digest.update(code_of(path).encode() + b"\0")
        return digest.hexdigest()[:16]

    def measured(self, document, root=ROOT):
        """Whether these results are those of the sources."""
        return document.get("sources") == self.sources_hash(root)


class Builds(Benchmark):
    """Times of building and testing everything. Every commit changes what is compiled, but hardly the times:
    they count as measured until the scripts and the build change, or the amount of code by a tenth."""

    def sources_hash(self, root=ROOT):
        digest = hashlib.sha256()
        for name in self.start:
            for path in sorted(root.glob(name)):
                digest.update(path.relative_to(root).as_posix().encode() + b"\0")
                lines = [line.strip() for line in path.read_text().splitlines()]
                digest.update("\n".join(line for line in lines if line and line[0] != "#").encode() + b"\0")
        return digest.hexdigest()[:16]

    def code_bytes(self, root=ROOT):
        return sum(path.stat().st_size for folder in COMPILED for path in c_files(root / folder))

    def measured(self, document, root=ROOT):
        hash_now, bytes_now = self.sources_hash(root), self.code_bytes(root)
        # A case that is from an earlier run has fields of its own.
        return all(each.get("sources") == hash_now and abs(bytes_now / each["code_bytes"] - 1) <= 0.1
                   for each in ({**document, **case} for case in document["cases"]))


COMPILED = ("include", "src", "cli", "examples", "bench", "tests", "python/src")
# Results that another script measures, without a GPU.
MEASURED_ELSEWHERE = {"first_minutes": Builds("first_minutes", "script", (
    "CMakeLists.txt", "*/CMakeLists.txt", "CMakePresets.json", "Makefile", "cmake/*",
    "scripts/requirements.txt",
    *(f"scripts/{name}.sh" for name in ("build", "demo", "first_minutes", "format", "lint", "preset", "python",
                                        "setup", "test", "wheel"))))}
SCRIPTS_NEED = {"attention_transformers": ("torch", "transformers"),
                "expert_streaming_transformers": ("torch", "transformers", "accelerate"),
                "kv_cache": ("torch",), "loading": ("pyarrow",),
                "moe_transformers": ("torch", "transformers")}
SCRIPTS_SHARE = {"expert_streaming_transformers": ("bench/moe_transformers.py",)}  # import from others
IMPORTS_ALL = "python"  # measures the import of the whole package


def every(root=ROOT):
    """All benchmarks of the tree, by name, in the order in which they run."""
    found = []
    for source in sorted((root / "bench").glob("*.c*")):
        name = source.stem.removesuffix("_cuda")
        if source.suffix in (".cpp", ".cu"):
            found.append(Benchmark(name, "program", (f"bench/{source.name}",)))
    for ladder in LADDERS:
        found.append(Benchmark(f"ladder_{ladder}", "ladder",
                               (f"examples/{ladder}", "examples/support")))
    for source in sorted((root / HARNESS / "operators").glob("[a-z]*.py")):
        found.append(Benchmark(source.stem, "operator", operator_sources(source.stem),
                               ("penstock",)))
    for source in sorted((root / "bench").glob("*.py")):
        needs = SCRIPTS_NEED.get(source.stem, ())
        package = ("python/penstock", "python/src") if source.stem == IMPORTS_ALL else ()
        shared = SCRIPTS_SHARE.get(source.stem, ())
        found.append(Benchmark(source.stem, "script", (*package, *shared, f"bench/{source.name}"),
                               ("penstock", *needs)))
    for name, (kernels, _) in PROFILED.items():
        variables = ("PEERS",) if "FlashAttention" in kernels else ()
        found.append(Benchmark(f"{name}_profiles", "profiles", operator_sources(name), ("penstock",),
                               ("ncu",), variables))
    return {benchmark.name: benchmark for benchmark in found}


def operator_sources(name):
    """The program that measures operators, the cases of one, and its peers that need nvcc."""
    peers = ("bench/peers/cub.cu",) if name in WITH_CUB else ()
    return f"{HARNESS}/__main__.py", f"{HARNESS}/operators/{name}.py", *peers


def closure(root, start):
    """The files below `start`, those that they include or import, and what implements the included
    headers."""
    todo, found = [], set()
    for name in start:
        path = root / name
        todo += ([path] if path.is_file() else
                 [p for p in path.rglob("*") if p.suffix in (*C_SUFFIXES, ".py")])
    while todo:
        path = todo.pop()
        if path in found or not path.is_file():
            continue
        found.add(path)
        if path.suffix in C_SUFFIXES:
            todo += included(root, path)
            todo += implementation(root, path)
        else:
            todo += python_sources.needed(root, path)
    return found


def included(root, path):
    for name in includes_of(path):
        if name in python_sources.LISTS:
            continue
        for folder in (root / "include", root / "src", root / "bench", root / "examples",
                       root / "python/src", path.parent):
            if (folder / name).is_file():
                yield folder / name
                break


def implementation(root, header):
    """What is compiled for a header: of a public one its module in src/, or the folder of its
    operator, and a folder below src/measure only for the header of its name; of a ladder's the
    ladder; of other shared ones the files of the same name; of the extension module the source of
    the same name."""
    parts = header.relative_to(root).parts
    if parts[:2] == ("include", "penstock"):
        below = parts[2:3] if parts[2] != "ops" else ("ops", Path(parts[3]).stem)
        folder = root.joinpath("src", *below)
        own = folder / Path(parts[-1]).stem
        for path in c_files(folder):
            if parts[2] != "measure" or path.parent in (folder, own):
                yield path
    elif parts[0] == "examples" and parts[1] != "support":
        yield from c_files(root / "examples" / parts[1])
    elif parts[:2] in (("bench", "support"), ("examples", "support")):
        yield from header.parent.glob(f"{header.stem}*")
    elif parts[:2] == ("python", "src"):
        yield header.with_suffix(".cpp")


@cache
def c_files(folder):
    return [path for path in folder.rglob("*") if path.suffix in C_SUFFIXES]


@cache
def includes_of(path):
    return INCLUDE.findall(path.read_text())


@cache
def code_of(path):
    """A file without its comments, docstrings and layout."""
    text = path.read_text()
    if path.suffix == ".py":
        return shape_of(without_docstrings(ast.parse(text)))
    bare = C_TOKEN.sub(lambda token: " " if token[0].startswith("/") else token[0], text)
    return " ".join(bare.split())


def shape_of(node):
    """A syntax tree as text, the same in every version of Python: ast.dump() also writes fields that
    are empty, and newer versions have more of them."""
    if isinstance(node, list):
        return f"[{','.join(map(shape_of, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, value) for name, value in ast.iter_fields(node) if value not in (None, []))
    return f"{type(node).__name__}({','.join(f'{name}={shape_of(value)}' for name, value in fields)})"


def without_docstrings(tree):
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (isinstance(body, list) and body and isinstance(body[0], ast.Expr)
                and isinstance(body[0].value, ast.Constant) and isinstance(body[0].value.value, str)):
            del body[0]
    return tree


def state(benchmark, results, root=ROOT, commit=None):
    """'current', 'stale' or 'missing': how its file in the folder `results` stands to the sources.

    With a `commit`, a file of another commit is stale, too. One of the two IDs may be shortened.
    """
    path = results / f"{benchmark.name}.json"
    if not path.is_file():
        return "missing"
    try:
        document = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError):
        return "stale"
    if commit is not None:
        known = document.get("commit", "unknown")
        if known.endswith("-dirty") or not (known.startswith(commit) or commit.startswith(known)):
            return "stale"
    return "current" if benchmark.measured(document, root) else "stale"

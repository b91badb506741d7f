"""What is compiled without CUDA includes none of its headers: the toolkit need not be installed."""

import re

import benchmarks

# As CUDA names its headers: cuda_runtime_api.h, cuda/barrier, cub/cub.cuh, cooperative_groups.h
OF_CUDA = re.compile(r"(cuda\b|cuda[_.]|cub/|cu[A-Z]|cupti|cooperative_groups|driver_types|vector_types|nv/)")


def paths_to_cuda(root, source):
    """From the source to the header of CUDA, with all files between them."""
    todo, seen = [(source,)], {source}
    while todo:
        path = todo.pop()
        text = without_optional_parts(path[-1].read_text())
        if found := [name for name in benchmarks.INCLUDE.findall(text) if OF_CUDA.match(name)]:
            yield [each.relative_to(root).as_posix() for each in path] + found
        for header in benchmarks.included(root, path[-1]):
            if header not in seen:
                seen.add(header)
                todo.append((*path, header))


def without_optional_parts(text):
    """Without what is only included where there is CUDA."""
    return re.sub(r"^#if (PENSTOCK_WITH_CUDA|__has_include).*?^#endif", "", text, flags=re.MULTILINE | re.DOTALL)


def sources(root):
    for folder in ("src", "cli", "python/src", "tests/support"):
        for source in (root / folder).rglob("*.cpp"):
            if not source.stem.endswith("_cuda"):
                yield source


def test_a_header_of_cuda_is_found_behind_others(write, tmp_path):
    source = write("src/a.cpp", '#include "b.h"\n#include <vector>\n')
    write("src/b.h", '#include "penstock/c.h"\n')
    write("include/penstock/c.h", "#include <cuda_runtime_api.h>\n")
    write("src/d_cuda.cpp", "#include <cuda.h>\n")
    assert list(sources(tmp_path)) == [source]
    assert list(paths_to_cuda(tmp_path, source)) == [
        ["src/a.cpp", "src/b.h", "include/penstock/c.h", "cuda_runtime_api.h"]]


def test_a_header_that_is_optional_is_not(write, tmp_path):
    source = write("src/a.cpp", "#if PENSTOCK_WITH_CUDA\n#include <cuda.h>\n#endif\n#include <string>\n")
    assert not list(paths_to_cuda(tmp_path, source))


def test_this_tree():
    root = benchmarks.ROOT
    assert [path for source in sorted(sources(root)) for path in paths_to_cuda(root, source)] == []

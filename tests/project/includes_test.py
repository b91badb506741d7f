import includes
import pytest


@pytest.mark.parametrize("code, expected", [
    ("std::vector<int> a;", [("std::vector", "vector")]),
    ("#include <vector>\nstd::vector<int> a;", []),
    ("#include <string>\nstd::string_view a;", [("std::string_view", "string_view")]),
    ("#include <map>\nstd::pair<int, int> a;", []),
    ("#include <cstring>\nstd::size_t a;", []),
    ("std::uint8_t a; std::uint8_t b;", [("std::uint8_t", "cstdint")]),
    ('// std::vector\nconst char* a = "std::map"; /* std::set */', []),
    ("std::no_such_name a;", []),
])
def test_finds_what_is_missing(code, expected):
    assert list(includes.missing(code)) == expected


def test_looks_at_all_public_headers(write, tmp_path, monkeypatch, capsys):
    write("include/penstock/a.h", "std::vector<int> a;\n")
    write("include/penstock/kit/b.cuh", "std::uint8_t a;\n")
    write("src/c.h", "std::vector<int> a;\n")
    monkeypatch.setattr("sys.argv", ["includes.py", str(tmp_path)])
    assert includes.main() == 1
    assert capsys.readouterr().out.splitlines() == [
        "include/penstock/a.h: uses std::vector, but does not include <vector>",
        "include/penstock/kit/b.cuh: uses std::uint8_t, but does not include <cstdint>"]


def test_this_tree(monkeypatch):
    monkeypatch.setattr("sys.argv", ["includes.py"])
    assert includes.main() == 0

#!/usr/bin/env python3
"""Checks that every public header includes the standard headers of the names that it uses.

A missing include compiles as long as another header brings it, in the standard library and the version
at hand. tools/headers.py --libcxx finds some of these, but not those that our own headers bring, and
none in .cuh headers.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r"^\s*#\s*include\s+<([\w./]+)>", re.MULTILINE)
NAME = re.compile(r"\bstd::(?:chrono\b|filesystem\b|ranges\b|\w+)")
# A comment, or a string or character literal.
TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)

# The header of a name; where several declare it, any of them will do. A name that is not here has no
# rule.
HEADERS = {
    ("algorithm",): "clamp fill find find_if max_element min_element nth_element sort transform upper_bound "
                    "lower_bound all_of any_of none_of copy_n min max",
    ("array",): "array",
    ("atomic",): "atomic atomic_flag",
    ("bit",): "bit_cast countr_zero countl_zero has_single_bit bit_width bit_ceil popcount",
    ("chrono",): "chrono",
    ("cmath",): "isfinite isnan sqrt exp log pow floor ceil fma nextafter",
    ("concepts",): "same_as convertible_to integral floating_point unsigned_integral invocable constructible_from "
                   "derived_from",
    ("condition_variable",): "condition_variable condition_variable_any",
    ("cstddef",): "byte ptrdiff_t max_align_t",
    ("cstddef", "cstdlib", "cstring"): "size_t",
    ("cstdint",): "int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t",
    ("cstdio",): "puts printf FILE",
    ("cstring",): "memcpy memset memcmp strlen",
    ("exception",): "exception_ptr current_exception rethrow_exception exception",
    ("filesystem",): "filesystem",
    ("functional",): "function hash less greater invoke reference_wrapper",
    ("future",): "future promise",
    ("initializer_list",): "initializer_list",
    ("limits",): "numeric_limits",
    ("map",): "map multimap",
    ("memory",): "unique_ptr shared_ptr weak_ptr make_unique make_shared enable_shared_from_this",
    ("mutex",): "mutex lock_guard unique_lock scoped_lock call_once",
    ("new",): "bad_alloc nothrow",
    ("numbers",): "numbers",
    ("numeric",): "accumulate iota gcd lcm reduce",
    ("optional",): "optional nullopt",
    ("random",): "mt19937 mt19937_64 uniform_int_distribution",
    ("set",): "set",
    ("span",): "span",
    ("stdexcept",): "runtime_error logic_error invalid_argument out_of_range",
    ("stop_token",): "stop_token stop_source stop_callback",
    ("string",): "string to_string",
    ("string_view",): "string_view",
    ("system_error",): "system_error error_code",
    ("thread",): "thread jthread this_thread",
    ("tuple",): "tuple tie make_tuple apply",
    ("type_traits",): "is_same_v is_same enable_if_t conditional_t remove_cv_t remove_cvref_t decay_t is_void_v "
                      "is_invocable_v is_invocable_r_v integral_constant true_type false_type bool_constant "
                      "underlying_type_t is_trivially_copyable_v is_const_v is_pointer_v make_unsigned_t "
                      "invoke_result_t is_constant_evaluated type_identity_t",
    ("typeinfo",): "type_info bad_cast",
    ("unordered_map",): "unordered_map",
    ("unordered_set",): "unordered_set",
    ("utility",): "move forward exchange integer_sequence index_sequence make_index_sequence index_sequence_for "
                  "declval",
    ("utility", "map", "unordered_map"): "pair",
    ("variant",): "variant visit holds_alternative monostate",
    ("vector",): "vector",
}
HEADERS_OF = {f"std::{name}": headers for headers, names in HEADERS.items() for name in names.split()}


def missing(text):
    """Pairs of a name that the header uses, and the header that it does not include."""
    included = set(INCLUDE.findall(text))
    code = TOKEN.sub(" ", text)
    for name in dict.fromkeys(NAME.findall(code)):
        headers = HEADERS_OF.get(name, ())
        if headers and not included & set(headers):
            yield name, headers[0]


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    found = [f"{path.relative_to(root)}: uses {name}, but does not include <{header}>"
             for path in sorted((root / "include").rglob("*")) if path.suffix in (".h", ".cuh")
             for name, header in missing(path.read_text())]
    print("\n".join(found) if found else "includes: nothing is missing")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

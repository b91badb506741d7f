# penstock_flags: what every target of this tree is compiled with, and none of an installed user's.
add_library(penstock_flags INTERFACE)

option(PENSTOCK_WERROR "Treat warnings as errors, as the project's own presets do" OFF)

# Empty without ccache, so that it can be part of a list of launchers.
find_program(PENSTOCK_CCACHE ccache)
mark_as_advanced(PENSTOCK_CCACHE)
set(penstock_cache)
if(PENSTOCK_CCACHE)
  set(penstock_cache "${PENSTOCK_CCACHE}")
endif()
if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${penstock_cache})
endif()

target_compile_features(penstock_flags INTERFACE cxx_std_20)
target_compile_options(penstock_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wno-sign-conversion>)
if(PENSTOCK_WERROR)
  target_compile_options(penstock_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
# GCC 12 sees overlaps and overflows inside std::string and std::vector that are not there
# (GCC bug 105651 and its kin).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(penstock_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict;-Wno-stringop-overflow>)
endif()

# libstdc++ 12's std::stable_sort calls a function that C++17 deprecated, and clang reports that. GCC's
# builds keep the warning.
target_compile_options(penstock_flags INTERFACE
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-deprecated-declarations>)

# Files that are compiled together see each other's names, and count as headers; the other builds do
# not switch these warnings off.
if(CMAKE_UNITY_BUILD)
  target_compile_options(penstock_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-shadow>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endif()

if(PENSTOCK_SANITIZE STREQUAL "address")
  set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(PENSTOCK_SANITIZE STREQUAL "thread")
  set(sanitizers -fsanitize=thread)
elseif(PENSTOCK_SANITIZE STREQUAL "fuzzer")
  set(sanitizers -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all)
elseif(PENSTOCK_SANITIZE)
  message(FATAL_ERROR
    "PENSTOCK_SANITIZE is '${PENSTOCK_SANITIZE}'; expected address, thread, fuzzer or nothing")
endif()
if(PENSTOCK_SANITIZE)
  target_compile_options(penstock_flags INTERFACE ${sanitizers} -fno-omit-frame-pointer)
  target_link_options(penstock_flags INTERFACE ${sanitizers})
endif()

# penstock_find(): finds an installed package, or downloads the release that is pinned here.
# FETCHCONTENT_SOURCE_DIR_<PACKAGE> names a folder with the sources to use instead of both.
include(FetchContent)

set(fmt_url https://github.com/fmtlib/fmt/archive/refs/tags/11.2.0.tar.gz)
set(fmt_sha256 bc23066d87ab3168f27cef3e97d545fa63314f5c79df5ea444d41d56f962c6af)
set(nlohmann_json_url https://github.com/nlohmann/json/releases/download/v3.12.0/json.tar.xz)
set(nlohmann_json_sha256 42f6e95cad6ec532fd372391373363b62a14af6d771056dbfc86160e6dfff7aa)
set(CLI11_url https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.5.0.tar.gz)
set(CLI11_sha256 17e02b4cddc2fa348e5dbdbb582c59a3486fa2b2433e70a0c3bacb871334fd55)

# A failed download inside FetchContent could not say what to install, so it comes before.
function(penstock_download package archive)
  message(STATUS "Penstock: ${package} is not installed; downloading ${${package}_url}")
  file(DOWNLOAD "${${package}_url}" "${archive}" STATUS status INACTIVITY_TIMEOUT 30)
  list(GET status 0 code)
  list(GET status 1 reason)
  if(NOT code EQUAL 0)
    file(REMOVE "${archive}")
    string(TOUPPER ${package} upper)
    message(FATAL_ERROR "Penstock needs fmt, nlohmann-json and CLI11. ${package} is not installed, and "
      "downloading ${${package}_url} failed: ${reason}. Install them (Debian and Ubuntu: apt-get "
      "install libfmt-dev nlohmann-json3-dev libcli11-dev), or set -D${package}_DIR to the folder of "
      "its CMake files, or -DFETCHCONTENT_SOURCE_DIR_${upper} to a folder with its sources.")
  endif()
endfunction()

# Sets penstock_<package>_sources to the folder of the sources. Their own CMake files are not run:
# headers are all that is wanted of most.
function(penstock_fetch package)
  string(TOUPPER ${package} upper)
  set(sources "${FETCHCONTENT_SOURCE_DIR_${upper}}")
  if(sources AND NOT EXISTS "${sources}/include")
    message(FATAL_ERROR "FETCHCONTENT_SOURCE_DIR_${upper} is '${sources}', which holds no folder "
      "include; expected a folder with the sources of ${package}")
  endif()
  get_filename_component(archive "${${package}_url}" NAME)
  set(archive "${PROJECT_BINARY_DIR}/downloads/${package}-${archive}")
  if(NOT sources)
    set(hash "")
    if(EXISTS "${archive}")
      file(SHA256 "${archive}" hash)
    endif()
    if(NOT hash STREQUAL "${${package}_sha256}")
      penstock_download(${package} "${archive}")
    endif()
  endif()
  FetchContent_Declare(${package} URL "${archive}" URL_HASH SHA256=${${package}_sha256}
    SOURCE_SUBDIR none DOWNLOAD_EXTRACT_TIMESTAMP ON)
  FetchContent_MakeAvailable(${package})
  string(TOLOWER ${package} lower)
  set(penstock_${package}_sources "${${lower}_SOURCE_DIR}" PARENT_SCOPE)
endfunction()

# penstock_find(<package> <target>): the target is the package's own, or one with its headers.
macro(penstock_find package target)
  string(TOUPPER ${package} penstock_upper)
  if(NOT TARGET ${target} AND NOT FETCHCONTENT_SOURCE_DIR_${penstock_upper})
    find_package(${package} QUIET)
  endif()
  if(NOT TARGET ${target})
    penstock_fetch(${package})
    add_library(${target} INTERFACE IMPORTED)
    target_include_directories(${target} SYSTEM INTERFACE "${penstock_${package}_sources}/include")
  endif()
endmacro()

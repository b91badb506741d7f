# penstock_private: the flags, the include paths and the private libraries of in-tree targets.
find_package(Threads REQUIRED)

include(PenstockFetch)
penstock_find(fmt fmt::fmt-header-only)
penstock_find(nlohmann_json nlohmann_json::nlohmann_json)

# penstock_parser: the programs' option parser, which is slow to optimise and to check for undefined
# behaviour, and needs neither.
if(PENSTOCK_CLI OR PENSTOCK_EXAMPLES OR PENSTOCK_BENCH)
  penstock_find(CLI11 CLI11::CLI11)
  add_library(penstock_parser INTERFACE)
  target_link_libraries(penstock_parser INTERFACE CLI11::CLI11)
  target_compile_options(penstock_parser INTERFACE -O1)
  if(PENSTOCK_SANITIZE STREQUAL "address")
    target_compile_options(penstock_parser INTERFACE -fno-sanitize=undefined)
  endif()
endif()

# fmt is compiled once; header-only, it costs every source that formats several seconds. Which
# templates an installed fmt needs instantiated differs between versions; others stay header-only.
set(fmt_source)
if(penstock_fmt_sources)
  set(fmt_source "${penstock_fmt_sources}/src/format.cc")
elseif(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 10)
  set(fmt_source "${PROJECT_SOURCE_DIR}/cmake/fmt.cpp")
endif()
if(fmt_source)
  add_library(penstock_fmt STATIC "${fmt_source}")
  target_compile_features(penstock_fmt PUBLIC cxx_std_20)
  target_include_directories(penstock_fmt SYSTEM PUBLIC
    $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
else()
  add_library(penstock_fmt INTERFACE)
  target_link_libraries(penstock_fmt INTERFACE fmt::fmt-header-only)
endif()

add_library(penstock_private INTERFACE)
target_include_directories(penstock_private INTERFACE
  "${PROJECT_SOURCE_DIR}/include" "${PROJECT_BINARY_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
target_link_libraries(penstock_private INTERFACE
  penstock_flags penstock_fmt nlohmann_json::nlohmann_json Threads::Threads ${CMAKE_DL_LIBS})

set(PENSTOCK_WITH_URING 0)
if(NOT PENSTOCK_URING STREQUAL "OFF")
  find_path(PENSTOCK_URING_INCLUDE liburing.h)
  find_library(PENSTOCK_URING_LIBRARY NAMES liburing.a)
  mark_as_advanced(PENSTOCK_URING_INCLUDE PENSTOCK_URING_LIBRARY)
  if(PENSTOCK_URING_INCLUDE AND PENSTOCK_URING_LIBRARY)
    set(PENSTOCK_WITH_URING 1)
    add_library(penstock_uring INTERFACE)
    target_include_directories(penstock_uring SYSTEM INTERFACE "${PENSTOCK_URING_INCLUDE}")
    target_link_libraries(penstock_uring INTERFACE "${PENSTOCK_URING_LIBRARY}")
    target_link_libraries(penstock_private INTERFACE penstock_uring)
  elseif(PENSTOCK_URING STREQUAL "ON")
    message(FATAL_ERROR "PENSTOCK_URING=ON, but liburing.h or liburing.a was not found")
  else()
    message(STATUS "Penstock: building without io_uring: liburing.h or liburing.a was not found")
  endif()
endif()

target_compile_definitions(penstock_private INTERFACE
  PENSTOCK_WITH_CUDA=${PENSTOCK_WITH_CUDA} PENSTOCK_WITH_URING=${PENSTOCK_WITH_URING})
if(PENSTOCK_WITH_CUDA)
  target_link_libraries(penstock_private INTERFACE CUDA::cudart_static)
endif()

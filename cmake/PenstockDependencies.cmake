# penstock_private: the flags, the include paths and the private libraries of in-tree targets.
find_package(Threads REQUIRED)

# penstock_require(<package> <Debian package>): finds it, or says what to install.
macro(penstock_require package debian)
  find_package(${package} QUIET)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "Penstock needs ${package}, which was not found. On Debian and Ubuntu: "
      "apt-get install ${debian}. Elsewhere, -D${package}_DIR says where its CMake files are.")
  endif()
endmacro()
penstock_require(fmt libfmt-dev)
penstock_require(nlohmann_json nlohmann-json3-dev)

# penstock_parser: the programs' option parser, which is slow to optimise and to check for undefined
# behaviour, and needs neither.
if(PENSTOCK_CLI OR PENSTOCK_EXAMPLES OR PENSTOCK_BENCH)
  penstock_require(CLI11 libcli11-dev)
  add_library(penstock_parser INTERFACE)
  target_link_libraries(penstock_parser INTERFACE CLI11::CLI11)
  target_compile_options(penstock_parser INTERFACE -O1)
  if(PENSTOCK_SANITIZE STREQUAL "address")
    target_compile_options(penstock_parser INTERFACE -fno-sanitize=undefined)
  endif()
endif()

# Which templates must be instantiated differs between versions of fmt; another one stays header-only.
if(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 10)
  add_library(penstock_fmt STATIC "${PROJECT_SOURCE_DIR}/cmake/fmt.cpp")
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

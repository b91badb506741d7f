# Sets PENSTOCK_WITH_CUDA; with CUDA, enables the language and guards every device compile.
set(PENSTOCK_CUDA_MINIMUM 12.8)
set(PENSTOCK_PORTABLE_ARCHITECTURES 80-real 90-real 80-virtual)
set(PENSTOCK_HOPPER_ARCHITECTURES 90a-real)
set(PENSTOCK_WITH_CUDA 0)

if(PENSTOCK_CUDA STREQUAL "OFF")
  return()
endif()

# Says why the toolkit cannot be used: fatal when CUDA was asked for, a message otherwise.
function(penstock_no_cuda reason)
  if(PENSTOCK_CUDA STREQUAL "ON")
    message(FATAL_ERROR "PENSTOCK_CUDA=ON, but ${reason}")
  endif()
  message(STATUS "Penstock: building without CUDA: ${reason}")
endfunction()

find_program(PENSTOCK_NVCC nvcc
  HINTS "${CMAKE_CUDA_COMPILER}" ENV CUDACXX
  PATHS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda
  PATH_SUFFIXES bin)
mark_as_advanced(PENSTOCK_NVCC)
if(DEFINED CMAKE_CUDA_COMPILER)
  set(nvcc "${CMAKE_CUDA_COMPILER}")
elseif(DEFINED ENV{CUDACXX})
  set(nvcc "$ENV{CUDACXX}")
else()
  set(nvcc "${PENSTOCK_NVCC}")
endif()
if(NOT nvcc)
  penstock_no_cuda("no nvcc was found")
  return()
endif()

execute_process(COMMAND "${nvcc}" --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
if(NOT nvcc_version MATCHES "release ([0-9]+\\.[0-9]+), V([0-9.]+)")
  penstock_no_cuda("'${nvcc} --version' does not name a release")
  return()
endif()
set(PENSTOCK_CUDA_VERSION "${CMAKE_MATCH_2}")
if(PENSTOCK_CUDA_VERSION VERSION_LESS PENSTOCK_CUDA_MINIMUM)
  penstock_no_cuda("${nvcc} is ${PENSTOCK_CUDA_VERSION}, older than ${PENSTOCK_CUDA_MINIMUM}")
  return()
endif()

set(CMAKE_CUDA_COMPILER "${nvcc}")
find_package(CUDAToolkit QUIET)
if(NOT TARGET CUDA::cudart_static)
  penstock_no_cuda("the toolkit of ${nvcc} has no static runtime library")
  return()
endif()

# Left unset, CMake would silently choose an architecture of its own.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES ${PENSTOCK_PORTABLE_ARCHITECTURES})
endif()
enable_language(CUDA)
set(PENSTOCK_WITH_CUDA 1)
message(STATUS "Penstock: building with CUDA ${PENSTOCK_CUDA_VERSION}")

# tools/ptxas_guard records what each kernel needs and refuses spills and lost performance; where
# warnings are no errors, it only warns. A launcher of the user's takes the place of ccache.
find_package(Python3 3.10 QUIET COMPONENTS Interpreter)
if(NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${penstock_cache})
endif()
if(Python3_Interpreter_FOUND)
  set(guard "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/tools/ptxas_guard")
  if(NOT PENSTOCK_WERROR)
    list(APPEND guard --warn)
  endif()
  list(PREPEND CMAKE_CUDA_COMPILER_LAUNCHER ${guard})
endif()

# CMake 3.25 does not know CUDA_STANDARD 20. -Wpedantic would complain of nvcc's own stubs.
target_compile_options(penstock_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;-lineinfo;-Xptxas=-v;-Xcompiler=-Wall,-Wextra,-Wshadow>)
if(PENSTOCK_WERROR)
  target_compile_options(penstock_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>)
endif()

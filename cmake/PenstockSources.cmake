# penstock_glob(<out> <pattern>...): the sources that this build compiles. A file's name says when:
# *_cuda.cpp and *.cu with CUDA, *_nocuda.cpp without, every other file always.
function(penstock_glob out)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${ARGN})
  if(PENSTOCK_WITH_CUDA)
    list(FILTER files EXCLUDE REGEX "_nocuda\\.cpp$")
  else()
    list(FILTER files EXCLUDE REGEX "(_cuda\\.cpp|\\.cu)$")
    # Compiled by themselves even where others are compiled together: the linter sees them nowhere
    # else.
    set(alone ${files})
    list(FILTER alone INCLUDE REGEX "_nocuda\\.cpp$")
    if(alone)
      set_source_files_properties(${alone} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endif()
  set(${out} ${files} PARENT_SCOPE)
endfunction()

# penstock_device_objects(<name> <out> SOURCES <file>... [LIBRARIES <library>...]): compiles the .cu
# files into object libraries <name>_hopper and <name>_portable: sm90*.cu and *_sm90*.cu for
# Hopper's own instructions, the rest for every supported GPU. <out> receives the objects.
function(penstock_device_objects name out)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  list(FILTER arg_SOURCES INCLUDE REGEX "\\.cu$")
  set(hopper ${arg_SOURCES})
  list(FILTER hopper INCLUDE REGEX "(/|_)sm90[^/]*\\.cu$")
  set(portable ${arg_SOURCES})
  list(FILTER portable EXCLUDE REGEX "(/|_)sm90[^/]*\\.cu$")
  set(objects)
  foreach(kind IN ITEMS hopper portable)
    if(${kind})
      string(TOUPPER ${kind} upper)
      add_library(${name}_${kind} OBJECT ${${kind}})
      # Each file alone: newer versions of CMake would compile kernels of several files together.
      set_target_properties(${name}_${kind} PROPERTIES
        CUDA_ARCHITECTURES "${PENSTOCK_${upper}_ARCHITECTURES}" UNITY_BUILD OFF)
      target_link_libraries(${name}_${kind} PRIVATE penstock_private ${arg_LIBRARIES})
      list(APPEND objects $<TARGET_OBJECTS:${name}_${kind}>)
    endif()
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()

# penstock_executable(<name> SOURCES <file>... [LIBRARIES <library>...]): a program of this tree.
function(penstock_executable name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  penstock_device_objects(${name} device ${ARGN})
  list(FILTER arg_SOURCES EXCLUDE REGEX "\\.cu$")
  add_executable(${name} ${arg_SOURCES} ${device})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(${name} PRIVATE penstock penstock_private ${arg_LIBRARIES})
endfunction()

# cmake -Dbuild=… -Dsource=… -Dcompiler=… -Dgenerator=… -P consumer.cmake
# Installs the build, moves the installed tree, and builds and runs a project that only knows that.
set(scratch "${build}/consumer")
file(REMOVE_RECURSE "${scratch}")

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(status)
    message(FATAL_ERROR "${ARGN}\n${output}")
  endif()
endfunction()

run("${CMAKE_COMMAND}" --install "${build}" --prefix "${scratch}/first")
file(RENAME "${scratch}/first" "${scratch}/prefix")
run("${CMAKE_COMMAND}" -S "${source}" -B "${scratch}/build" -G "${generator}"
  "-DCMAKE_CXX_COMPILER=${compiler}" "-DCMAKE_PREFIX_PATH=${scratch}/prefix")
run("${CMAKE_COMMAND}" --build "${scratch}/build")
run("${scratch}/build/consumer")
if(EXISTS "${build}/bin/penstock")
  run("${scratch}/prefix/bin/penstock" --help)
endif()

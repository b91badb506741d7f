# cmake -Dsource=… -Doutput=… -Dcompiler=… -Dcuda=… -P build_info.cmake
# Runs at every build; configure_file leaves an unchanged header untouched.
set(commit unknown)
find_program(git git)
if(git)
  execute_process(COMMAND "${git}" -C "${source}" rev-parse --short=12 HEAD
    OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(commit "${head}")
    # What benchmarks write, and the pages made of it, change nothing that is measured.
    execute_process(COMMAND "${git}" -C "${source}" status --porcelain
      -- . ":(exclude)bench/results" ":(exclude)docs"
      OUTPUT_VARIABLE changes ERROR_QUIET)
    if(changes)
      string(APPEND commit "-dirty")
    endif()
  endif()
endif()
configure_file("${CMAKE_CURRENT_LIST_DIR}/penstock_build.h.in" "${output}" @ONLY)

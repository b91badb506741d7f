include(CMakePackageConfigHelpers)

install(TARGETS penstock EXPORT PenstockTargets)
# Those that were built.
foreach(program IN ITEMS penstock_cli penstock_ladder)
  if(TARGET ${program})
    install(TARGETS ${program} OPTIONAL)
  endif()
endforeach()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/penstock" "${PROJECT_BINARY_DIR}/include/penstock"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh" PATTERN "*.inc")

set(config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Penstock")
install(EXPORT PenstockTargets NAMESPACE Penstock:: DESTINATION "${config_dir}")
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/PenstockConfig.cmake.in" "${PROJECT_BINARY_DIR}/PenstockConfig.cmake"
  INSTALL_DESTINATION "${config_dir}"
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/PenstockConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/PenstockConfig.cmake" "${PROJECT_BINARY_DIR}/PenstockConfigVersion.cmake"
  DESTINATION "${config_dir}")

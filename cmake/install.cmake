# Programs, libraries, headers, contract, and the package config behind
# find_package(routepack).

include(CMakePackageConfigHelpers)

install(TARGETS routepackd routepackctl
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
install(TARGETS routepack_planner routepack_proto routepack_codec
                routepack_client
        EXPORT routepack-targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(DIRECTORY planner client
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/routepack
        COMPONENT development
        FILES_MATCHING PATTERN "*.h" PATTERN "cli" EXCLUDE)
# proto/codec keeps its path: headers include "proto/codec/codec.h".
install(DIRECTORY proto/codec
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/routepack/proto
        COMPONENT development FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${PROJECT_BINARY_DIR}/proto/gen/
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/routepack
        COMPONENT development FILES_MATCHING PATTERN "*.h")
install(DIRECTORY proto/routepack
        DESTINATION ${CMAKE_INSTALL_DATADIR}/routepack/proto
        COMPONENT development FILES_MATCHING PATTERN "*.proto")

set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/routepack)
install(EXPORT routepack-targets NAMESPACE routepack::
        DESTINATION ${config_dir} COMPONENT development)
configure_package_config_file(
  cmake/routepack-config.cmake.in
  ${PROJECT_BINARY_DIR}/routepack-config.cmake
  INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/routepack-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/routepack-config.cmake
              ${PROJECT_BINARY_DIR}/routepack-config-version.cmake
        DESTINATION ${config_dir} COMPONENT development)

# Installed packages only; nothing is downloaded. ./dev setup installs them.

find_package(Threads REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(TBB CONFIG REQUIRED)
# Newer protobuf ships its own package config; Debian's 3.21 has CMake's module.
find_package(Protobuf CONFIG QUIET)
if(NOT Protobuf_FOUND)
  find_package(Protobuf MODULE REQUIRED)
endif()
find_package(gRPC CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)

# google/rpc/{status,error_details}.proto. PyPI's googleapis-common-protos has
# them; ./dev setup puts it into .venv.
file(GLOB routepack_venv_site LIST_DIRECTORIES true
     "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages")
find_path(ROUTEPACK_GOOGLEAPIS_DIR google/rpc/error_details.proto
  HINTS ${routepack_venv_site}
  DOC "Directory that holds google/rpc/error_details.proto")
if(NOT ROUTEPACK_GOOGLEAPIS_DIR)
  message(FATAL_ERROR "google/rpc/error_details.proto not found: run "
    "'./dev setup', or 'pip install googleapis-common-protos' and set "
    "ROUTEPACK_GOOGLEAPIS_DIR to its site-packages")
endif()

if(ROUTEPACK_BUILD_TESTS)
  find_package(GTest CONFIG REQUIRED)
endif()
if(ROUTEPACK_BUILD_BENCHMARKS)
  find_package(benchmark CONFIG REQUIRED)
endif()

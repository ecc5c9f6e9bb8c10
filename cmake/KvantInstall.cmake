# SPDX-FileCopyrightText: The kvant authors
# SPDX-License-Identifier: Apache-2.0

# Installation. Inside there is one static library for each folder; outside there are two targets:
# kvant::kv (the library of caches and attention) and kvant::runtime (that and the LLM runtime). Only
# include/kvant is installed; tests/install is a project that uses the result.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(kvant_public_kv INTERFACE)
add_library(kvant::kv ALIAS kvant_public_kv)
target_link_libraries(kvant_public_kv INTERFACE kvant_kv)
file(GLOB_RECURSE public_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/kvant/*.h)
target_sources(kvant_public_kv INTERFACE
  FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES ${public_headers})
target_compile_features(kvant_public_kv INTERFACE cxx_std_20)
# all_verify_interface_header_sets compiles each public header alone.
set_target_properties(kvant_public_kv PROPERTIES
  VERIFY_INTERFACE_HEADER_SETS ${PROJECT_IS_TOP_LEVEL} EXPORT_NAME kv)

set(runtime_targets)
if(KVANT_RUNTIME)
  add_library(kvant_public_runtime INTERFACE)
  add_library(kvant::runtime ALIAS kvant_public_runtime)
  target_link_libraries(kvant_public_runtime INTERFACE kvant_public_kv kvant_engine)
  set_target_properties(kvant_public_runtime PROPERTIES EXPORT_NAME runtime)
  set(runtime_targets kvant_public_runtime kvant_llm kvant_engine)
endif()

install(TARGETS kvant_public_kv kvant_base kvant_backend kvant_kv ${runtime_targets}
        EXPORT kvantTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
set(KVANT_PACKAGE_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/kvant)
install(EXPORT kvantTargets NAMESPACE kvant:: DESTINATION ${KVANT_PACKAGE_FOLDER})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/kvantConfig.cmake.in
  ${PROJECT_BINARY_DIR}/generated/kvantConfig.cmake INSTALL_DESTINATION ${KVANT_PACKAGE_FOLDER})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/kvantConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/generated/kvantConfig.cmake
              ${PROJECT_BINARY_DIR}/generated/kvantConfigVersion.cmake
        DESTINATION ${KVANT_PACKAGE_FOLDER})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(KVANT_APPS)
  install(TARGETS kvant_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

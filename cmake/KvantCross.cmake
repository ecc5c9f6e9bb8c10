# SPDX-FileCopyrightText: The kvant authors
# SPDX-License-Identifier: Apache-2.0

# Cross builds need no libraries of the target where sources will do: {fmt} as headers and GoogleTest built
# from the sources that the build machine's packages hold.

function(kvant_cross_fmt)
  find_package(fmt QUIET)
  if(TARGET fmt::fmt)
    return()
  endif()
  find_path(KVANT_FMT_INCLUDE fmt/format.h REQUIRED)
  add_library(fmt::fmt INTERFACE IMPORTED GLOBAL)
  target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
  target_include_directories(fmt::fmt INTERFACE ${KVANT_FMT_INCLUDE})
endfunction()

function(kvant_cross_gtest)
  find_package(GTest QUIET)
  if(TARGET GTest::gtest_main)
    return()
  endif()
  find_path(KVANT_GTEST_SOURCE googletest/src/gtest-all.cc PATHS /usr/src/googletest REQUIRED
            NO_DEFAULT_PATH)
  set(BUILD_GMOCK OFF)
  set(INSTALL_GTEST OFF)
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)  # its options take the values above
  add_subdirectory(${KVANT_GTEST_SOURCE} ${PROJECT_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
endfunction()

# SPDX-FileCopyrightText: The kvant authors
# SPDX-License-Identifier: Apache-2.0

# Who built this: version, commit, dirty flag, compiler and flags, so that every result can name the
# binary that made it. Written at build time, re-read only when the commit moves.

set(KVANT_BUILD_ID_HEADER ${PROJECT_BINARY_DIR}/generated/kvant_build_id.h)
add_custom_target(kvant_build_id
  COMMAND ${CMAKE_COMMAND} -DOUT=${KVANT_BUILD_ID_HEADER} -DSOURCE_DIR=${PROJECT_SOURCE_DIR}
          -DVERSION=${PROJECT_VERSION} "-DCOMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
          -DBUILD_TYPE=${CMAKE_BUILD_TYPE} -DSANITIZE=${KVANT_SANITIZE} -DCUDA=${KVANT_HAVE_CUDA}
          -P ${PROJECT_SOURCE_DIR}/cmake/WriteBuildId.cmake
  BYPRODUCTS ${KVANT_BUILD_ID_HEADER}
  VERBATIM)

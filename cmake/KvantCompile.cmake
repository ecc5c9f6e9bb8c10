# SPDX-FileCopyrightText: The kvant authors
# SPDX-License-Identifier: Apache-2.0

# Compile options of every target, and the function that makes a library of a folder.
#
# Only three global choices: warnings, no contraction of a*b+c (the same source must give the same
# bits under every compiler) and no errno from math functions. Never -march=native, never
# -ffast-math: the instruction set is chosen at run time (src/backend/cpu).

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

add_library(kvant_options INTERFACE)
target_compile_options(kvant_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-ffp-contract=off;-fno-math-errno>
  $<$<AND:$<BOOL:${KVANT_WERROR}>,$<COMPILE_LANGUAGE:CXX>>:-Werror>
  # g++ 12 sees an overlapping copy in libstdc++'s own "literal" + std::string.
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
  # nvcc hands these to its host compiler; its own front end knows no -W of g++.
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-ffp-contract=off,-fno-math-errno>
  $<$<AND:$<BOOL:${KVANT_WERROR}>,$<COMPILE_LANGUAGE:CUDA>>:--Werror=all-warnings;-Xcompiler=-Werror>)
if(KVANT_SANITIZE)
  target_compile_options(kvant_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${KVANT_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>)
  target_link_options(kvant_options INTERFACE -fsanitize=${KVANT_SANITIZE})
endif()

# kvant_add_library(NAME FOLDER DEPENDS...): every *.cc below FOLDER except tests and test-only code.
# Globbing is deliberate: a source or test file cannot be forgotten in a list.
function(kvant_add_library name folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cc)
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  add_library(${name} STATIC ${sources})
  target_include_directories(${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
    $<INSTALL_INTERFACE:include>)
  target_link_libraries(${name} PUBLIC ${ARGN} PRIVATE $<BUILD_INTERFACE:kvant_options>)
endfunction()

# SPDX-FileCopyrightText: The kvant authors
# SPDX-License-Identifier: Apache-2.0

# The CUDA backend: compiled when a usable nvcc is there (AUTO), required with ON, left out with OFF.
# Without it cuda_stub.cc supplies the same symbols, so no other folder has an #ifdef.

if(NOT KVANT_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "KVANT_CUDA=${KVANT_CUDA} is not known; use AUTO, ON or OFF")
endif()

set(KVANT_HAVE_CUDA OFF)
set(KVANT_MIN_NVCC 12.0)  # the first with C++20 in device code
if(NOT KVANT_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80 90a)
    endif()
    enable_language(CUDA)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL KVANT_MIN_NVCC)
      set(KVANT_HAVE_CUDA ON)
    elseif(KVANT_CUDA STREQUAL "ON")
      message(FATAL_ERROR "KVANT_CUDA=ON needs nvcc ${KVANT_MIN_NVCC} or later and found "
                          "${CMAKE_CUDA_COMPILER_VERSION}; install a later CUDA toolkit or use "
                          "-DKVANT_CUDA=OFF")
    endif()
  elseif(KVANT_CUDA STREQUAL "ON")
    message(FATAL_ERROR "KVANT_CUDA=ON but no nvcc was found; install the CUDA toolkit or use "
                        "-DKVANT_CUDA=OFF")
  endif()
endif()

if(KVANT_HAVE_CUDA)
  find_package(CUDAToolkit REQUIRED)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
  if(CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
endif()
message(STATUS "kvant: CUDA backend ${KVANT_HAVE_CUDA}")

# kvant_configure_cuda(TARGET): adds the .cu files of src/backend/cuda in the place of the stub.
function(kvant_configure_cuda target)
  if(NOT KVANT_HAVE_CUDA)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources EXCLUDE REGEX "/cuda_stub\\.cc$")
  file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/backend/cuda/*.cu)
  set_property(TARGET ${target} PROPERTY SOURCES ${sources} ${cuda_sources})
  target_link_libraries(${target} PRIVATE CUDA::cudart_static)
endfunction()

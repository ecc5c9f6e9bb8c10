# SPDX-FileCopyrightText: The kvant authors
# SPDX-License-Identifier: Apache-2.0

# The CUDA backend: compiled when nvcc is there (AUTO), required with ON, left out with OFF. Without
# it cuda_stub.cc supplies the same symbols, so no other folder has an #ifdef.

set(KVANT_HAVE_CUDA OFF)
if(NOT KVANT_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80 90a)
    endif()
    enable_language(CUDA)
    set(CMAKE_CUDA_STANDARD 20)
    find_package(CUDAToolkit REQUIRED)
    set(KVANT_HAVE_CUDA ON)
  elseif(KVANT_CUDA STREQUAL "ON")
    message(FATAL_ERROR "KVANT_CUDA=ON but no nvcc was found; install the CUDA toolkit or use "
                        "-DKVANT_CUDA=OFF")
  endif()
endif()
message(STATUS "kvant: CUDA backend ${KVANT_HAVE_CUDA}")

function(kvant_configure_cuda target)
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/backend/cuda)
  get_target_property(sources ${target} SOURCES)
  if(KVANT_HAVE_CUDA)
    list(FILTER sources EXCLUDE REGEX "cuda_stub\\.cc$")
    file(GLOB cuda_sources CONFIGURE_DEPENDS ${folder}/*.cu)
    list(APPEND sources ${cuda_sources})
    target_link_libraries(${target} PUBLIC CUDA::cudart_static)
  endif()
  set_property(TARGET ${target} PROPERTY SOURCES ${sources})
endfunction()

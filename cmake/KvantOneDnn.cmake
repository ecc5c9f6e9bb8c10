# SPDX-FileCopyrightText: The kvant authors
# SPDX-License-Identifier: Apache-2.0

# oneDNN, for the weight products of prefill: used when it is found (AUTO), required with ON, left out with
# OFF. By header and library alone: the package's own configuration asks for OpenCL's development files, which
# nothing here needs. Its API changed between 2.x and 3.x; onednn_gemm.cc is written to 2.x.

if(NOT KVANT_ONEDNN MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "KVANT_ONEDNN=${KVANT_ONEDNN} is not known; use AUTO, ON or OFF")
endif()

set(KVANT_HAVE_ONEDNN OFF)
if(KVANT_RUNTIME AND NOT KVANT_ONEDNN STREQUAL "OFF")
  find_path(KVANT_ONEDNN_INCLUDE dnnl.hpp)
  find_library(KVANT_ONEDNN_LIBRARY dnnl)
  set(version "none")
  if(KVANT_ONEDNN_INCLUDE AND KVANT_ONEDNN_LIBRARY)
    foreach(header dnnl_version.h oneapi/dnnl/dnnl_version.h)
      if(EXISTS ${KVANT_ONEDNN_INCLUDE}/${header})
        file(STRINGS ${KVANT_ONEDNN_INCLUDE}/${header} line REGEX "define DNNL_VERSION_MAJOR +[0-9]+")
        if(line MATCHES "([0-9]+)$")
          set(version ${CMAKE_MATCH_1})
        endif()
      endif()
    endforeach()
  endif()
  if(version EQUAL 2)
    set(KVANT_HAVE_ONEDNN ON)
    # kvantConfig.cmake makes the same target for those who link the installed libraries.
    add_library(KvantOneDnn::dnnl UNKNOWN IMPORTED GLOBAL)
    set_target_properties(KvantOneDnn::dnnl PROPERTIES IMPORTED_LOCATION ${KVANT_ONEDNN_LIBRARY}
                          INTERFACE_INCLUDE_DIRECTORIES ${KVANT_ONEDNN_INCLUDE})
  elseif(KVANT_ONEDNN STREQUAL "ON")
    message(FATAL_ERROR "KVANT_ONEDNN=ON needs oneDNN 2.x and found major version ${version}; install "
                        "libdnnl-dev or use -DKVANT_ONEDNN=OFF")
  endif()
endif()
message(STATUS "kvant: oneDNN ${KVANT_HAVE_ONEDNN}")

function(kvant_configure_onednn target)
  if(NOT KVANT_HAVE_ONEDNN)
    return()
  endif()
  target_compile_definitions(${target} PRIVATE KVANT_HAVE_ONEDNN)
  target_link_libraries(${target} PRIVATE KvantOneDnn::dnnl ${CMAKE_DL_LIBS})
endfunction()

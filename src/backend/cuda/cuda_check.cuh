// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The one macro through which every CUDA call and launch goes. For .cu files only; these include
// kvant/error.h and not base/error.h, because nvcc cannot compile {fmt}.
#pragma once

#include <cuda_runtime.h>

namespace kvant {

/// Throws Error: kResourceExhausted when the device has no memory, kUnsupported when there is no usable
/// device or driver, kInternal otherwise; the sentence names the call, its file and its line.
[[noreturn]] void CudaCallFailed(cudaError_t error, const char* call, const char* file, int line);

}  // namespace kvant

#define KVANT_CUDA_CHECK(call)                                                    \
  do {                                                                            \
    if (const cudaError_t kvant_error = (call); kvant_error != cudaSuccess) {     \
      ::kvant::CudaCallFailed(kvant_error, #call, __FILE__, __LINE__);            \
    }                                                                             \
  } while (false)

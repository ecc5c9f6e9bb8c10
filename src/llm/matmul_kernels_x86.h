// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The x86 instances of the weight-product kernels; only matmul_kernels.cc includes this.
#pragma once

#include "llm/matmul_kernels.h"

namespace kvant {
namespace matmul_avx2 {
const MatmulKernels& Kernels();
}
namespace matmul_avx512 {
const MatmulKernels& Kernels();
}
}  // namespace kvant

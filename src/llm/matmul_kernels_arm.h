// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The AArch64 instance of the weight-product kernels; only matmul_kernels.cc includes this.
#pragma once

#include "llm/matmul_kernels.h"

namespace kvant::matmul_neon {
const MatmulKernels& Kernels();
}  // namespace kvant::matmul_neon

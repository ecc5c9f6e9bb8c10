// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The x86 instances of the attention kernels; only attention_kernels.cc includes this.
#pragma once

#include "kv/attention/attention_kernels.h"

namespace kvant {
namespace attention_avx2 {
const AttentionKernels& Kernels();
}
namespace attention_avx512 {
const AttentionKernels& Kernels();
}
}  // namespace kvant

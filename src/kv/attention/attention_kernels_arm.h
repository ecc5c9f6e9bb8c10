// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The AArch64 instance of the attention kernels; only attention_kernels.cc includes this.
#pragma once

#include "kv/attention/attention_kernels.h"

namespace kvant::attention_neon {
const AttentionKernels& Kernels();
}  // namespace kvant::attention_neon

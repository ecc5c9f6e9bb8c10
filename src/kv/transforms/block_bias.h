// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// q . mean of each block, which attention adds to the scores of packed keys (key_transform.h): data
// of the kernel, which comes in one version for each instruction set
// (kv/attention/attention_kernels.h).
#pragma once

#include <cstddef>

#include "kv/transforms/rope.h"

namespace kvant {

struct BlockBiasArgs {
  const RopePhases* phases;  // nullptr: the mean does not turn
  const float* products;     // [n_rows, product_floats] of KeyTransform::Products
  std::size_t product_floats;
  std::size_t n_rows;
  std::size_t first;     // block
  std::size_t n_blocks;  // at least 1
  float* bias;           // [n_rows, n_blocks]
};

}  // namespace kvant

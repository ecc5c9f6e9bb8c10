// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Internal to the cache: the two sides of a block, in bytes and in methods.
#pragma once

#include <cstddef>

#include "kv/layouts/block_pool.h"
#include "kv/resolved_method.h"

namespace kvant {

// Start of one side inside a block: keys first, then values.
inline std::byte* SideData(const BlockRef& block, Side side, const BlockGeometry& key) {
  return block.data() + (side == Side::kKey ? 0 : key.bytes);
}

inline const SideMethod& SideOf(const LayerMethod& method, Side side) {
  return side == Side::kKey ? method.key : method.value;
}

inline const SideMethod& ExactSideOf(const LayerMethod& method, Side side) {
  return side == Side::kKey ? method.exact_key : method.exact_value;
}

}  // namespace kvant

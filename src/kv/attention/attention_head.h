// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Internal to kv/attention: the KV head that a work item is about.
#pragma once

#include "kv/attention/attention.h"

namespace kvant {

struct Attention::Head {
  const AttendArgs* args;
  const LayerKernels* kernels;
  const LayerMethod* method;
  const HeadTable* table;
  std::size_t kv_head;
  std::size_t last_position;  // of the last query token

  Head(const AttendArgs& a, std::size_t head, const LayerKernels& layer_kernels)
      : args(&a),
        kernels(&layer_kernels),
        method(&a.cache->method().layer(a.layer)),
        table(&a.cache->head(a.layer, head)),
        kv_head(head),
        last_position(a.first_position + a.n_query - 1) {}

  /// Blocks that a query at position t reads packed.
  std::size_t PackedBlocks(std::size_t t) const { return method->PackedBlocks(t); }
  bool has_sinks() const { return static_cast<bool>(table->sink_rows); }

  const SideMethod& side(Side which, bool packed) const {
    if (which == Side::kKey) return packed ? method->key : method->exact_key;
    return packed ? method->value : method->exact_value;
  }
  const std::byte* data(std::size_t block, Side which, bool packed) const {
    const BlockRef& ref = packed ? table->blocks[block].packed : table->blocks[block].exact;
    return ref.data() + (which == Side::kKey ? 0 : side(Side::kKey, packed).geometry.bytes);
  }
  /// The key transform of packed rows; nullptr where there is none.
  const KeyTransform* transform() const { return method->transform.get(); }
  const float* version(std::size_t block) const {
    return table->version(method->transform->VersionOf(block));
  }
};

}  // namespace kvant

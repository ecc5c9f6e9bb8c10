// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Internal to kv/attention: the KV head that a work item is about, and the blocks that a query
// reads.
#pragma once

#include <algorithm>

#include "kv/attention/attention.h"

namespace kvant {

/// The first position that a query at position t sees (AttendArgs::window).
inline std::size_t FirstSeen(std::size_t t, std::size_t window) {
  return window == 0 || t < window ? 0 : t + 1 - window;
}

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
  std::size_t FirstSeen(std::size_t t) const { return kvant::FirstSeen(t, args->window); }
  bool has_sinks() const { return static_cast<bool>(table->sink_rows); }

  /// Whether a decode query reads sinks [FirstSeen(its position), sink) from the exact rows that
  /// are kept for them, in place of those of packed block 0.
  bool reads_sinks() const {
    return has_sinks() && PackedBlocks(last_position) > 0 &&
           FirstSeen(last_position) < method->sink;
  }

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

/// Blocks [begin, end) in n splits of per_split blocks from `origin` on, which depend on the
/// aligned tile of position t alone: the first split may begin with a block that only earlier
/// positions of the tile read. Skipping it gives the same bits as hiding its tokens.
struct Attention::Splits {
  std::size_t begin, end, origin, per_split, n;

  Splits(std::size_t t, std::size_t window)
      : begin(FirstSeen(t, window) / kBlockTokens),
        end(t / kBlockTokens + 1),
        origin(FirstSeen(t / kBlockTokens * kBlockTokens, window) / kBlockTokens),
        per_split(SplitBlocks(end - origin)),
        n((end - origin + per_split - 1) / per_split) {}

  Blocks operator[](std::size_t i) const {
    const std::size_t first = origin + i * per_split;
    return {std::max(first, begin), std::min(first + per_split, end)};
  }
};

}  // namespace kvant

// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Bytes of a KV cache by side, and the ratios that papers and people quote of them. A ratio of
// packed vectors alone flatters: exact rows, sinks and state are resident too, and values count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "kv/resolved_method.h"

namespace kvant::bench {

struct KvSides {
  std::size_t kv_len = 0;  // tokens in the cache; 0: nothing is known
  // Bytes of one key vector (one head), mean over layers: 16 bit, and as the codec packs it.
  double fp16_key_vector = 0, packed_key_vector = 0;
  // All resident bytes of a side: packed blocks, exact blocks (the open one whole), sinks, state.
  std::uint64_t key_resident = 0, value_resident = 0;
  std::uint64_t fp16_key_resident = 0, fp16_value_resident = 0;  // of fp16 at the same kv_len
};

/// What `method` predicts for kv_len tokens. key_resident + value_resident ==
/// method.Predict(kv_len).resident.
KvSides SidesOf(const Method& method, std::size_t kv_len);

/// {key_ratio_published, key_ratio_resident, kv_ratio_resident, ...}: fp16 bytes / method bytes;
/// null where nothing is known. key_ratio_published counts packed vectors only. `resident_bytes` is
/// what the cache was measured to hold, for the ratio of the whole cache.
nlohmann::json RatiosToJson(const KvSides& sides, std::uint64_t resident_bytes);

}  // namespace kvant::bench

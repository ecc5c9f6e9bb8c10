// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/kv_sides.h"

#include "kv/spec.h"

namespace kvant::bench {
namespace {

using nlohmann::json;

json Ratio(double fp16_bytes, double bytes) {
  if (fp16_bytes == 0 || bytes == 0) return nullptr;
  return fp16_bytes / bytes;
}

}  // namespace

KvSides SidesOf(const Method& method, std::size_t kv_len) {
  const CacheGeometry& geometry = method.geometry();
  const Method fp16(ParseMethodSpec("fp16"), geometry);
  KvSides sides;
  sides.kv_len = kv_len;
  for (std::size_t i = 0; i < geometry.n_layer; ++i) {
    const LayerMethod& layer = method.layer(i);
    const LayerMethod& plain = fp16.layer(i);
    const double n_layer = static_cast<double>(geometry.n_layer);
    sides.packed_key_vector += static_cast<double>(layer.key.geometry.bytes_per_token) / n_layer;
    sides.fp16_key_vector += static_cast<double>(plain.key.geometry.bytes_per_token) / n_layer;
  }
  sides.value_resident = method.ResidentBytes(Side::kValue, kv_len);
  sides.fp16_key_resident = fp16.ResidentBytes(Side::kKey, kv_len);
  sides.fp16_value_resident = fp16.ResidentBytes(Side::kValue, kv_len);
  // All the rest belongs to the keys: their rows, and what the key transform keeps.
  sides.key_resident = method.Predict(kv_len).resident - sides.value_resident;
  return sides;
}

json RatiosToJson(const KvSides& sides, std::uint64_t resident_bytes) {
  const double fp16_resident =
      static_cast<double>(sides.fp16_key_resident + sides.fp16_value_resident);
  return {{"kv_len", sides.kv_len},
          {"fp16_key_vector_bytes", sides.fp16_key_vector},
          {"packed_key_vector_bytes", sides.packed_key_vector},
          {"key_resident_bytes", sides.key_resident},
          {"fp16_key_resident_bytes", sides.fp16_key_resident},
          {"fp16_resident_bytes", sides.fp16_key_resident + sides.fp16_value_resident},
          {"resident_bytes", resident_bytes},
          {"key_ratio_published", Ratio(sides.fp16_key_vector, sides.packed_key_vector)},
          {"key_ratio_resident", Ratio(static_cast<double>(sides.fp16_key_resident),
                                       static_cast<double>(sides.key_resident))},
          {"kv_ratio_resident", Ratio(fp16_resident, static_cast<double>(resident_bytes))}};
}

}  // namespace kvant::bench

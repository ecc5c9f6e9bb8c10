// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/resolved_method.h"

#include <algorithm>

#include "base/error.h"
#include "kv/layouts/block_pool.h"
#include "kv/registry.h"

namespace kvant {
namespace {

SideMethod Bind(Side side, const CodecChoice& choice, std::size_t head_dim) {
  const CodecRecord* codec = FindCodec(choice.codec);
  KVANT_CHECK(codec != nullptr);  // the grammar refused unknown names
  if (const std::string reason = codec->refuse_head_dim(head_dim); !reason.empty()) {
    Fail(ErrorCode::kUnsupported, "codec '{}' cannot keep rows of head_dim {}: {}", codec->name,
         head_dim, reason);
  }
  SideMethod bound;
  bound.codec = codec;
  bound.config = codec->parse_config(choice.options);
  bound.geometry = codec->geometry(side, head_dim, *bound.config);
  if (codec->state_bytes != nullptr) {
    bound.state_bytes = codec->state_bytes(side, head_dim, *bound.config);
  }
  return bound;
}

bool Covers(const LayerOverride& layers, std::size_t layer) {
  return std::any_of(layers.ranges.begin(), layers.ranges.end(), [layer](const auto& range) {
    return range.first <= layer && layer <= range.second;
  });
}

}  // namespace

std::uint64_t LayerMethod::exact_block_bytes() const {
  return BlockPool::RoundedBytes(exact_key.geometry.bytes + exact_value.geometry.bytes);
}

std::uint64_t LayerMethod::packed_block_bytes() const {
  return BlockPool::RoundedBytes(key.geometry.bytes + value.geometry.bytes);
}

std::uint64_t LayerMethod::sink_bytes() const {
  if (identity || sink == 0) return 0;
  return BlockPool::RoundedBytes(
      sink * (exact_key.geometry.bytes_per_token + exact_value.geometry.bytes_per_token));
}

std::uint64_t LayerMethod::state_bytes() const {
  return BlockPool::RoundedBytes(key.state_bytes) + BlockPool::RoundedBytes(value.state_bytes);
}

std::size_t LayerMethod::PackedBlocks(std::size_t t) const {
  return identity || t < window ? 0 : (t - window) / kBlockTokens;
}

Method::Method(MethodSpec spec, const CacheGeometry& geometry)
    : spec_(std::move(spec)), geometry_(geometry) {
  for (const LayerOverride& layers : spec_.layers) {
    for (const auto& range : layers.ranges) {
      if (range.second >= geometry.n_layer) {
        Fail(ErrorCode::kInvalidArgument,
             "method '{}' names layer {}; the model has layers 0 to {}", spec_.ToString(),
             range.second, geometry.n_layer - 1);
      }
    }
  }
  const CodecChoice exact{.codec = spec_.exact, .options = {}};
  for (std::size_t i = 0; i < geometry.n_layer; ++i) {
    CodecChoice key = spec_.key;
    CodecChoice value = spec_.value;
    for (const LayerOverride& layers : spec_.layers) {
      if (!Covers(layers, i)) continue;
      if (layers.key) key = *layers.key;
      if (layers.value) value = *layers.value;
    }
    LayerMethod layer;
    layer.key = Bind(Side::kKey, key, geometry.head_dim);
    layer.value = Bind(Side::kValue, value, geometry.head_dim);
    layer.exact_key = Bind(Side::kKey, exact, geometry.head_dim);
    layer.exact_value = Bind(Side::kValue, exact, geometry.head_dim);
    layer.identity = key == exact && value == exact;
    layer.sink = spec_.sink;
    layer.window = spec_.window;
    layers_.push_back(std::move(layer));
  }
}

bool Method::saves_memory() const {
  return std::any_of(layers_.begin(), layers_.end(), [](const LayerMethod& layer) {
    return layer.key.codec->storage == StorageKind::kPacked ||
           layer.value.codec->storage == StorageKind::kPacked;
  });
}

PredictedBytes Method::Predict(std::size_t kv_len) const {
  PredictedBytes total;
  for (const LayerMethod& layer : layers_) {
    const std::uint64_t n_packed = layer.PackedBlocks(kv_len);
    const std::uint64_t n_exact = BlocksFor(kv_len) - n_packed;
    const std::uint64_t exact_token_bytes =
        layer.exact_key.geometry.bytes_per_token + layer.exact_value.geometry.bytes_per_token;
    std::uint64_t once = 0;
    if (n_packed > 0) once = layer.sink_bytes() + layer.state_bytes();
    const std::uint64_t packed = n_packed * layer.packed_block_bytes() + once;
    total.resident += packed + n_exact * layer.exact_block_bytes();
    total.payload += packed + (kv_len - n_packed * kBlockTokens) * exact_token_bytes;
  }
  total.resident *= geometry_.n_kv_head;
  total.payload *= geometry_.n_kv_head;
  return total;
}

std::size_t Method::PackedTokens(std::size_t t) const {
  return layers_.empty() ? 0 : layers_[0].PackedBlocks(t) * kBlockTokens;
}

double Method::BytesPerToken(Side side) const {
  double bytes = 0;
  for (const LayerMethod& layer : layers_) {
    const SideMethod& method = side == Side::kKey ? layer.key : layer.value;
    bytes += static_cast<double>(method.geometry.bytes) / static_cast<double>(kBlockTokens);
  }
  return bytes * static_cast<double>(geometry_.n_kv_head);
}

}  // namespace kvant

// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/resolved_method.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "kv/layouts/block_pool.h"
#include "kv/registry.h"

namespace kvant {
namespace {

SideMethod Bind(Side side, const CodecChoice& choice, std::size_t layer, std::size_t head_dim) {
  const CodecRecord* codec = FindCodec(choice.codec);
  KVANT_CHECK(codec != nullptr);  // the grammar refused unknown names
  if (const std::string reason = codec->refuse_head_dim(head_dim); !reason.empty()) {
    Fail(ErrorCode::kUnsupported, "codec '{}' cannot keep rows of head_dim {}: {}", codec->name,
         head_dim, reason);
  }
  SideMethod bound;
  bound.codec = codec;
  bound.config =
      BindCodec(*codec, choice.options, {.side = side, .layer = layer, .head_dim = head_dim});
  bound.geometry = codec->geometry(side, head_dim, *bound.config);
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

std::uint64_t LayerMethod::energy_bytes() const {
  return transform == nullptr ? 0 : BlockPool::RoundedBytes(transform->energy_bytes());
}

std::uint64_t LayerMethod::version_bytes() const {
  return transform == nullptr ? 0 : BlockPool::RoundedBytes(transform->version_bytes());
}

std::size_t LayerMethod::PackedBlocks(std::size_t t) const {
  if (identity) return 0;
  if (pack_tail) return t / kBlockTokens + 1;
  return t < window ? 0 : (t - window) / kBlockTokens;
}

// With tail=packed there are no exact rows: nothing to keep aside and nothing to learn from.
// Not the first block, whose packing makes the sinks, nor the first of a version, which is learned from
// the rows of the window too.
std::size_t LayerMethod::PackedAhead(std::size_t t) const {
  const std::size_t block = HeldPacked(t);
  if (pack_lead == 0 || block == 0 || PackedBlocks(t + pack_lead) == block) return 0;
  if (transform == nullptr) return 1;
  return transform->FirstBlock(transform->VersionOf(block)) == block ? 0 : 1;
}

void Method::CheckTail() const {
  if (!spec_.pack_tail) return;
  if (spec_.sink != 0 || spec_.window != 0 || spec_.key_transform.active()) {
    Fail(ErrorCode::kInvalidArgument,
         "method '{}' packs every row at once (tail=packed), so it has no exact rows; use it with sink=0, "
         "window=0, k_mean=off and smooth=off",
         spec_.ToString());
  }
}

void Method::LoadProfile() {
  const std::string& path = spec_.key_transform.profile;
  if (path.empty()) return;
  profile_ = std::make_shared<const KeyProfile>(LoadKeyProfile(path));
  const KeyProfile& p = *profile_;
  const CacheGeometry& g = geometry_;
  if (p.n_layer == g.n_layer && p.n_kv_head == g.n_kv_head && p.head_dim == g.head_dim) return;
  Fail(ErrorCode::kInvalidArgument,
       "{}: it is the profile of {} layers with {} KV heads of head_dim {} and the model has {} with {} of "
       "{}; make one of this model with 'kvant calibrate smooth'",
       path, p.n_layer, p.n_kv_head, p.head_dim, g.n_layer, g.n_kv_head, g.head_dim);
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
  CheckTail();
  LoadProfile();
  KVANT_CHECK(geometry.layer_ropes.empty() || geometry.layer_ropes.size() == geometry.n_layer);
  // Layers that turn keys alike share one.
  std::map<const RopeGeometry*, std::shared_ptr<const KeyTransform>> transforms;
  const auto transform_of = [&](std::size_t i) {
    if (!spec_.key_transform.active()) return std::shared_ptr<const KeyTransform>();
    const std::shared_ptr<const RopeGeometry>& rope = geometry.rope_of(i);
    std::shared_ptr<const KeyTransform>& transform = transforms[rope.get()];
    if (transform == nullptr) {
      transform =
          std::make_shared<const KeyTransform>(spec_.key_transform, geometry.head_dim, rope);
    }
    return transform;
  };
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
    layer.key = Bind(Side::kKey, key, i, geometry.head_dim);
    layer.value = Bind(Side::kValue, value, i, geometry.head_dim);
    layer.exact_key = Bind(Side::kKey, exact, i, geometry.head_dim);
    layer.exact_value = Bind(Side::kValue, exact, i, geometry.head_dim);
    layer.identity = key == exact && value == exact;
    layer.sink = spec_.sink;
    layer.window = spec_.window;
    layer.pack_tail = spec_.pack_tail && !layer.identity;  // such a layer packs nothing
    layer.dequantize = spec_.dequantize && !layer.identity;
    // A block is full `window` tokens before it is asked for; without a window there is no time.
    if (!layer.identity && layer.window > 0) {
      layer.pack_lead = (geometry.n_layer - 1 - i) * kBlockTokens / geometry.n_layer;
    }
    // Keys of the exact type gain nothing from a transform and would lose bits to it.
    if (!layer.identity && !(key == exact)) layer.transform = transform_of(i);
    if (layer.transform && profile_) layer.profile = &profile_->heads[i * geometry.n_kv_head];
    layers_.push_back(std::move(layer));
  }
}

bool Method::saves_memory() const {
  return std::any_of(layers_.begin(), layers_.end(), [](const LayerMethod& layer) {
    return layer.key.codec->storage == StorageKind::kPacked ||
           layer.value.codec->storage == StorageKind::kPacked;
  });
}

// Packed rows, what is kept once, and `n_exact` exact blocks of one head.
std::uint64_t Method::LayerBytes(const LayerMethod& layer, std::size_t kv_len,
                                 std::size_t n_exact) const {
  if (kv_len == 0) return 0;
  const std::size_t n_packed = layer.HeldPacked(kv_len);
  const std::size_t n_version = layer.transform == nullptr ? 0 : layer.transform->Versions(n_packed);
  return (n_packed + layer.PackedAhead(kv_len)) * layer.packed_block_bytes() + (n_packed > 0 ? layer.sink_bytes() : 0) +
         layer.energy_bytes() + n_version * layer.version_bytes() +
         n_exact * layer.exact_block_bytes();
}

PredictedBytes Method::Predict(std::size_t kv_len) const {
  PredictedBytes total;
  for (const LayerMethod& layer : layers_) {
    const std::size_t n_packed = layer.HeldPacked(kv_len);
    const std::size_t n_exact = BlocksFor(kv_len) - n_packed;
    const std::uint64_t resident = LayerBytes(layer, kv_len, n_exact);
    // The last block holds fewer tokens than it has room for.
    const std::uint64_t room = BlocksFor(kv_len) * kBlockTokens - kv_len;
    const LayerMethod& l = layer;
    const std::uint64_t token_bytes =
        n_exact > 0 ? l.exact_key.geometry.bytes_per_token + l.exact_value.geometry.bytes_per_token
                    : l.key.geometry.bytes_per_token + l.value.geometry.bytes_per_token;
    total.resident += resident;
    total.payload +=
        resident - layer.PackedAhead(kv_len) * layer.packed_block_bytes() - room * token_bytes;
  }
  total.resident *= geometry_.n_kv_head;
  total.payload *= geometry_.n_kv_head;
  return total;
}

std::uint64_t Method::AheadBytes(std::size_t kv_len) const {
  std::uint64_t bytes = 0;
  for (const LayerMethod& layer : layers_) {
    bytes += layer.PackedAhead(kv_len) * layer.packed_block_bytes();
  }
  return bytes * geometry_.n_kv_head;
}

std::uint64_t Method::PredictStepPeak(std::size_t from, std::size_t to) const {
  std::uint64_t held = Predict(from).resident / geometry_.n_kv_head;
  std::uint64_t peak = held;
  for (const LayerMethod& layer : layers_) {
    const std::uint64_t before =
        LayerBytes(layer, from, BlocksFor(from) - layer.HeldPacked(from));
    const std::uint64_t after = LayerBytes(layer, to, BlocksFor(to) - layer.HeldPacked(to));
    const std::size_t n_exact = layer.pack_tail ? 0 : BlocksFor(to) - layer.HeldPacked(from);
    peak = std::max(peak, held - before + LayerBytes(layer, to, n_exact));
    held += after - before;
  }
  return peak * geometry_.n_kv_head;
}

std::uint64_t Method::ResidentBytes(Side side, std::size_t kv_len) const {
  std::uint64_t bytes = 0;
  for (const LayerMethod& layer : layers_) {
    const SideMethod& packed = side == Side::kKey ? layer.key : layer.value;
    const SideMethod& exact = side == Side::kKey ? layer.exact_key : layer.exact_value;
    const std::size_t n_packed = layer.HeldPacked(kv_len);
    bytes += n_packed * packed.geometry.bytes +
             (BlocksFor(kv_len) - n_packed) * exact.geometry.bytes;
    if (n_packed > 0 && layer.sink_bytes() > 0) bytes += layer.sink * exact.geometry.bytes_per_token;
  }
  return bytes * geometry_.n_kv_head;
}

std::size_t Method::PackedTokens(std::size_t t) const {
  return layers_.empty() ? 0 : std::min(layers_[0].HeldPacked(t) * kBlockTokens, t);
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

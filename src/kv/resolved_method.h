// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A method bound to a model: which codecs each layer uses, how many bytes everything takes.
// Predicted bytes come from here, and the cache allocates by the same functions, so they are equal.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kv/spec.h"
#include "kv/transforms/key_transform.h"

namespace kvant {

/// Shape of what a cache keeps. n_q_head = n_kv_head * heads_per_kv.
struct CacheGeometry {
  std::size_t n_layer = 0;
  std::size_t n_kv_head = 0;
  std::size_t heads_per_kv = 0;
  std::size_t head_dim = 0;
  std::shared_ptr<const RopeGeometry> rope = nullptr;  // how keys were turned; nullptr: not known
  /// [n_layer] where layers turn them in different ways; empty: all as `rope` says.
  std::vector<std::shared_ptr<const RopeGeometry>> layer_ropes = {};

  const std::shared_ptr<const RopeGeometry>& rope_of(std::size_t layer) const {
    return layer_ropes.empty() ? rope : layer_ropes[layer];
  }
};

/// One side (keys or values) of one layer.
struct SideMethod {
  const CodecRecord* codec = nullptr;
  std::shared_ptr<const CodecConfig> config;
  BlockGeometry geometry;
};

/// One layer. `exact_*` is how rows are kept while they are exact. Where both codecs are the exact type
/// itself, nothing is ever packed: `identity`. With `pack_tail` nothing is ever exact.
struct LayerMethod {
  SideMethod key, value;
  SideMethod exact_key, exact_value;
  bool identity = false;
  bool pack_tail = false;
  bool dequantize = false;  // attention rebuilds all packed keys at every step (measured baseline)
  std::size_t sink = 0;
  std::size_t window = 0;
  std::size_t pack_lead = 0;  // tokens by which blocks are packed before the rule asks for them, < 64
  std::shared_ptr<const KeyTransform> transform;  // of packed keys; nullptr: none
  const KeyStatistics* profile = nullptr;  // [n_kv_head], the Method's; nullptr: none

  std::uint64_t exact_block_bytes() const;
  std::uint64_t packed_block_bytes() const;
  /// Rows of the sinks, kept beside the packed block 0; 0 where nothing is packed.
  std::uint64_t sink_bytes() const;
  /// The key transform's query statistics, from the first token on, and its versions once packed.
  std::uint64_t energy_bytes() const;
  std::uint64_t version_bytes() const;
  /// The reading rule: blocks [0, n) are read packed by a query at position t, the rest exact.
  /// Block b is packed for t when 64 * (b + 1) + window <= t; with pack_tail every block is.
  std::size_t PackedBlocks(std::size_t t) const;
  /// Blocks that are packed once t tokens are cached and committed.
  std::size_t HeldPacked(std::size_t t) const { return std::min(PackedBlocks(t), BlocksFor(t)); }
  /// Blocks that are held packed besides, their exact rows too, once t tokens are cached: 0 or 1. Layers have
  /// different leads, so that the packing of a block of every layer is spread over 64 steps.
  std::size_t PackedAhead(std::size_t t) const;
  /// Positions whose keys and queries the key transform learns from: [sink, 64 + window).
  std::size_t StatisticsEnd() const { return kBlockTokens + window; }
};

/// Bytes of one cache after `kv_len` tokens were committed.
struct PredictedBytes {
  std::uint64_t payload = 0;   // what the format needs
  std::uint64_t resident = 0;  // what the pool holds
};

class Method {
 public:
  /// Binds a spec. Throws Error: kInvalidArgument for a layer range outside the model, kUnsupported for a
  /// head_dim that a codec refuses, that of LoadKeyProfile for a profile= that cannot be read,
  /// kInvalidArgument for one of another geometry. (Whether it is of this model is the engine's to check.)
  Method(MethodSpec spec, const CacheGeometry& geometry);

  const MethodSpec& spec() const { return spec_; }
  const CacheGeometry& geometry() const { return geometry_; }
  const LayerMethod& layer(std::size_t layer) const { return layers_[layer]; }
  /// What profile= names; nullptr: none.
  const KeyProfile* profile() const { return profile_.get(); }
  /// Does any layer use a codec whose bytes really are smaller (StorageKind::kPacked)?
  bool saves_memory() const;
  PredictedBytes Predict(std::size_t kv_len) const;
  /// The part of Predict's resident bytes that blocks packed ahead take.
  std::uint64_t AheadBytes(std::size_t kv_len) const;
  /// Resident bytes at the worst moment of a step that appends the tokens [from, to): the layers take
  /// turns, and the one at hand holds exact and packed rows of the step at once.
  std::uint64_t PredictStepPeak(std::size_t from, std::size_t to) const;
  /// Resident bytes of one side, rows alone (what a key transform keeps is in Predict's total).
  std::uint64_t ResidentBytes(Side side, std::size_t kv_len) const;
  /// Tokens of the first layer that a query at position t reads packed.
  std::size_t PackedTokens(std::size_t t) const;
  /// Bytes of one token's keys or values, all layers and KV heads, when everything is packed.
  double BytesPerToken(Side side) const;

 private:
  void CheckTail() const;
  void LoadProfile();
  std::uint64_t LayerBytes(const LayerMethod& layer, std::size_t kv_len, std::size_t n_exact) const;

  MethodSpec spec_;
  CacheGeometry geometry_;
  std::vector<LayerMethod> layers_;
  std::shared_ptr<const KeyProfile> profile_;
};

}  // namespace kvant

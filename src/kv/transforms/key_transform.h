// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What is done to keys before they are coded, exactly undone in the scores: mean removal and smoothing.
//
//   k' = (k - mean) / lambda      q' = q * lambda      q . k = q' . k' + q . mean
//
// Codes hold k'. Exact rows keep k. Every codec can be used with it; none sees it.
//
// Mean. RoPE turns a key's mean with its position, pair by pair, so:
//   block0     the mean of the first rows, frozen
//   refreeze   the same, learned anew every N tokens (a new version of the state)
//   rope       the mean before RoPE, frozen; block b uses its average over the block's positions,
//              mean_b = R(64 b) center, center = average over j < 64 of R(j) mean. No bytes a block: one
//              bias q . mean_b for each block and query
// Smoothing. lambda_c = sqrt(sigma_c / r_c), sigma_c the rms deviation of the rows from the mean used, r_c
// the rms of the query channel over the head's queries: after a rotation the code error is white, so the
// logit error is D / d * sum(q_c^2 lambda_c^2) * sum(sigma_c^2 / lambda_c^2), whose least value
// (Cauchy-Schwarz) this lambda reaches.
//   balanced       as above
//   balanced_pair  sigma and r are shared by the two channels of a RoPE pair, so lambda does not depend on
//                  the position
//   sigma          sqrt(sigma_c): the queries are not looked at
//   max            sqrt(max |k_c|) (VecInfer arXiv 2510.06175, QServe arXiv 2405.04532)
// sigma, r and max have a floor of 1e-3 of the head's largest; lambda is scaled to a geometric mean of 1.
//
// Statistics are those of the rows that are exact when the first block (of a version) is packed, 64 + window
// of them, the sinks left out; queries are those of the same first positions. They depend on positions
// alone, so the result is the same for every chunking. With a profile (key_profile.h) sigma, r and max are
// those of the file, and only the mean is learned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kv/block.h"
#include "kv/transforms/key_profile.h"
#include "kv/transforms/rope.h"

namespace kvant {

enum class KeyMean : std::uint8_t { kOff, kBlock0, kRefreeze, kRope };
enum class KeySmooth : std::uint8_t { kOff, kBalanced, kBalancedPair, kSigma, kMax };

struct KeyTransformSpec {
  KeyMean mean = KeyMean::kOff;
  std::size_t refreeze_tokens = 0;  // kRefreeze: a multiple of 64
  KeySmooth smooth = KeySmooth::kOff;
  std::string profile = {};  // path of the file that lambda is taken from; empty: none

  bool active() const { return mean != KeyMean::kOff || smooth != KeySmooth::kOff; }
};
bool operator==(const KeyTransformSpec& a, const KeyTransformSpec& b);

/// "off", "block0", "refreeze:512", "rope".
std::string KeyMeanText(const KeyTransformSpec& spec);
std::string KeySmoothText(KeySmooth smooth);

/// The transform of one model's keys. Immutable; states live in the cache, one for each (layer, KV head):
/// query energy [head_dim] floats while and after it is collected, and for each version
/// center [head_dim], lambda [head_dim] floats.
class KeyTransform {
 public:
  /// Throws Error(kUnsupported) where the mean needs RoPE and `rope` is nullptr or does not fit head_dim.
  KeyTransform(const KeyTransformSpec& spec, std::size_t head_dim,
               const std::shared_ptr<const RopeGeometry>& rope);

  const KeyTransformSpec& spec() const { return spec_; }
  bool active() const { return spec_.active(); }
  bool needs_queries() const {
    return spec_.profile.empty() &&
           (spec_.smooth == KeySmooth::kBalanced || spec_.smooth == KeySmooth::kBalancedPair);
  }
  std::uint64_t energy_bytes() const { return needs_queries() ? head_dim_ * sizeof(float) : 0; }
  std::uint64_t version_bytes() const { return active() ? 2 * head_dim_ * sizeof(float) : 0; }
  /// Which version block b uses, and how many versions n packed blocks have.
  std::size_t VersionOf(std::size_t block) const {
    return spec_.mean == KeyMean::kRefreeze ? block * kBlockTokens / spec_.refreeze_tokens : 0;
  }
  std::size_t Versions(std::size_t n_packed_blocks) const {
    return active() && n_packed_blocks > 0 ? VersionOf(n_packed_blocks - 1) + 1 : 0;
  }
  /// First block of a version.
  std::size_t FirstBlock(std::size_t version) const {
    return version * spec_.refreeze_tokens / kBlockTokens;
  }

  /// energy[c] += sum of squares of channel c over the queries, one after the other.
  void AddQueries(const float* queries, std::size_t n, float* energy) const;

  struct FreezeArgs {
    const float* rows;      // [n_rows, head_dim] keys at consecutive positions
    std::size_t n_rows;     // 0 (all were sinks): center 0, lambda 1 or the profile's
    std::size_t position;   // of row 0
    const float* energy;    // [head_dim]; read where needs_queries()
    std::size_t n_queries = 1;               // that energy sums over
    const KeyStatistics* profile = nullptr;  // replaces what rows and energy say of sizes
  };
  void Freeze(const FreezeArgs& args, float* version) const;
  /// What smoothing would be told of these rows (at least one) and of energy (nullptr: query is 1) under the
  /// mean of a version.
  KeyStatistics Measure(const FreezeArgs& args, const float* version) const;

  /// The mean that block b's codes are taken against: mean [head_dim].
  void BlockMean(const float* version, std::size_t block, float* mean) const;
  /// Keys of one block to what is coded, in place: rows [64, head_dim]. A row whose rms would not fit a half
  /// is shortened to one that does.
  void Apply(const float* version, std::size_t block, float* rows) const;
  /// A decoded key tile [head_dim, 64] back to keys, in place.
  void Undo(const float* version, std::size_t block, float* tile) const;

  /// q' = q * lambda: [n, head_dim] each.
  void TransformQueries(const float* version, const float* query, std::size_t n, float* out) const;
  /// What the bias of every block, q . mean_b, is made of: out [n, product_floats()]. The kernel that makes it:
  /// block_bias.h.
  std::size_t product_floats() const;
  void Products(const float* version, const float* query, std::size_t n, float* out) const;
  /// nullptr where the mean does not turn.
  const RopePhases* phases() const { return phases_.get(); }

 private:
  void TurnToBlock(const float* center, std::size_t block, float* out) const;
  std::vector<double> MeanBeforeRope(const FreezeArgs& args) const;
  void FreezeCenter(const FreezeArgs& args, float* center) const;
  void FreezeLambda(const FreezeArgs& args, const float* version, float* lambda) const;

  KeyTransformSpec spec_;
  std::size_t head_dim_;
  std::shared_ptr<const RopeGeometry> rope_;
  std::shared_ptr<const RopePhases> phases_;  // kRope only
};

}  // namespace kvant

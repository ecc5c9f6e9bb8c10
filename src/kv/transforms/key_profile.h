// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Statistics of a model's keys and queries, measured once on a text ('kvant calibrate smooth') and kept in
// a file, so that smoothing (key_transform.h) need not learn them from the first rows of every cache. Which
// lambda they give is the method's choice; means are always learned.
//
// The file, little-endian: "KVKEYST\n"; u32 version, layers, KV heads, head_dim; u64 fingerprint of the
// model, tokens; for each layer and KV head the floats of spread, max_abs and query, head_dim of each;
// u64 XXH64 of all that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kvant {

/// Channels of one (layer, KV head): [head_dim] each, finite and not negative.
struct KeyStatistics {
  std::vector<float> spread;   // rms deviation of the keys from the mean used
  std::vector<float> max_abs;  // largest |key|
  std::vector<float> query;    // rms over the queries of the head's group
};

struct KeyProfile {
  std::uint64_t fingerprint = 0;  // of the model file (llm/fingerprint.h)
  std::uint64_t n_tokens = 0;     // positions that were measured
  std::size_t n_layer = 0, n_kv_head = 0, head_dim = 0;
  std::vector<KeyStatistics> heads;  // [n_layer * n_kv_head]
};

/// The file's bytes; the same for equal profiles.
std::vector<std::byte> FormatKeyProfile(const KeyProfile& profile);
/// Throws Error that names `name`: kCorruptData (not a profile, truncated, damaged, a value that no
/// measurement gives), kUnsupported (format version).
KeyProfile ParseKeyProfile(std::span<const std::byte> bytes, const std::string& name);
/// Throws Error like ParseKeyProfile; kNotFound, kInvalidArgument where `path` is not a file.
KeyProfile LoadKeyProfile(const std::string& path);

}  // namespace kvant

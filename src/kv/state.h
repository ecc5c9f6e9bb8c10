// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A session's cache and tokens as bytes, and back. The bytes do not depend on kernel, instruction set or
// layout: rows and codes are in canonical order. Format: docs/state-format.md.
//
// Restoring is all or nothing: the header has a checksum of its own and every field in it is compared with
// what is here before anything is allocated; the rows go into a cache of their own, which the caller gets
// only when the checksum of the whole agrees. Sizes follow from the method and the number of tokens, so a
// hostile file cannot ask for memory.
//
// Snapshots of a cache are not part of a state. Kernels neither.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kv/cache.h"

namespace kvant {

/// Raised when the meaning of any byte changes, a codec's codes included.
inline constexpr std::uint32_t kStateVersion = 1;

/// Which model the rows belong to.
struct StateModel {
  std::string name;  // for messages
  std::uint64_t fingerprint = 0;
};

/// Takes the next bytes of a state.
using StateSink = std::function<void(std::span<const std::byte>)>;
/// Fills all of `bytes` with the next bytes of a state, or throws.
using StateSource = std::function<void(std::span<std::byte> bytes)>;

/// Writes the committed rows of `cache` and the session's tokens. The cache holds a prefix of the tokens.
/// Throws Error(kUnsupported) for a codec without canonical order, and what `sink` throws.
void SaveState(const KvCache& cache, const StateModel& model, std::span<const std::int32_t> tokens,
               const StateSink& sink);

struct RestoreArgs {
  std::string name;             // of the file, for messages
  std::uint64_t n_bytes = 0;    // that `read` can give in all
  StateSource read;
  StateModel model;             // the one here
  std::size_t max_tokens = 0;   // that a session here may cache
  std::size_t n_vocab = 0;
};

struct RestoredState {
  KvCache cache;
  std::vector<std::int32_t> tokens;  // the cache holds the first cache.length() of them
};

/// Throws Error with one sentence: kCorruptData (not a state, truncated, trailing bytes, checksum, fields
/// that contradict each other), kUnsupported (format version), kInvalidArgument (another model, geometry,
/// RoPE or method; more tokens than max_tokens), kResourceExhausted (the pool's limit).
RestoredState RestoreState(const std::shared_ptr<const Method>& method, BlockPool* pool, Isa isa,
                           const RestoreArgs& args);

}  // namespace kvant

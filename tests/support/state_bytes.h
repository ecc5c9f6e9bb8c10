// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// States in memory, for tests: saved, restored, and sealed again after a test has changed their bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "kv/state.h"
#include "kv/state_header.h"

namespace kvant::test {

using StateBytes = std::vector<std::byte>;

inline constexpr std::size_t kStateVocab = 1000;

inline const StateModel& TestStateModel() {
  static const StateModel kModel = {.name = "a model", .fingerprint = 0x0123456789abcdefu};
  return kModel;
}

/// Tokens 0, 1, 2, ... of a session with `n` tokens.
inline std::vector<std::int32_t> CountingTokens(std::size_t n) {
  std::vector<std::int32_t> tokens(n);
  for (std::size_t i = 0; i < n; ++i) tokens[i] = static_cast<std::int32_t>(i % kStateVocab);
  return tokens;
}

inline StateBytes SaveToBytes(const KvCache& cache, std::span<const std::int32_t> tokens) {
  StateBytes bytes;
  SaveState(cache, TestStateModel(), tokens,
            [&](std::span<const std::byte> part) { bytes.insert(bytes.end(), part.begin(), part.end()); });
  return bytes;
}

/// What RestoreState is told about `bytes`, which must stay alive.
inline RestoreArgs ArgsFor(std::span<const std::byte> bytes) {
  return {.name = "test.state",
          .n_bytes = bytes.size(),
          .read =
              [bytes, done = std::size_t{0}](std::span<std::byte> to) mutable {
                std::copy_n(bytes.data() + done, to.size(), to.data());
                done += to.size();
              },
          .model = TestStateModel(),
          .max_tokens = 4096,
          .n_vocab = kStateVocab};
}

/// Length of the header text as the bytes say it.
inline std::size_t HeaderBytes(std::span<const std::byte> bytes) {
  std::uint32_t n;
  std::memcpy(&n, bytes.data() + kStatePreludeBytes - sizeof(n), sizeof(n));
  return n;
}

inline std::string HeaderText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()) + kStatePreludeBytes, HeaderBytes(bytes)};
}

/// Makes both checksums agree with the bytes, so that what lies behind them is reached; of bytes that are no
/// state, those that have a place.
inline void Seal(StateBytes& bytes) {
  if (bytes.size() < kStatePreludeBytes + 2 * kStateChecksumBytes) return;
  const auto put = [&](std::size_t at) {
    const std::uint64_t checksum = Hash64Of(std::span(bytes).first(at));
    std::memcpy(bytes.data() + at, &checksum, sizeof(checksum));
  };
  const std::size_t end = bytes.size() - kStateChecksumBytes;
  const std::size_t header_end = kStatePreludeBytes + HeaderBytes(bytes);
  if (header_end + kStateChecksumBytes <= end) put(header_end);
  put(end);
}

/// The same state with another header text, sealed.
inline StateBytes WithHeader(const StateBytes& bytes, const std::string& header) {
  const std::size_t rest = kStatePreludeBytes + HeaderBytes(bytes);
  StateBytes changed(kStatePreludeBytes + header.size() + bytes.size() - rest);
  const auto n = static_cast<std::uint32_t>(header.size());
  std::copy_n(bytes.data(), kStatePreludeBytes, changed.data());
  std::memcpy(changed.data() + kStatePreludeBytes - sizeof(n), &n, sizeof(n));
  std::memcpy(changed.data() + kStatePreludeBytes, header.data(), header.size());
  std::copy_n(bytes.data() + rest, bytes.size() - rest,
              changed.data() + kStatePreludeBytes + header.size());
  Seal(changed);
  return changed;
}

}  // namespace kvant::test

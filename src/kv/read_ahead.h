// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Memory that the next run of blocks will read, brought into the cache while this run is computed.
// Blocks lie apart, where a hardware prefetcher does not follow, and a core holds few outstanding
// lines: all phases of a run (scores, softmax, sums) must ask for their share, evenly, or the memory
// rests in one and is waited for in another. Lines go to the second level: a run and the next one are
// larger than the first, where they would only displace queries, scores and sums.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvant {

class ReadAhead {
 public:
  /// The phases of a run, in order.
  enum class Phase { kScore, kSoftmax, kSum };

  /// Nothing to read.
  ReadAhead() = default;
  /// Blocks of `block_bytes` (a multiple of 64), both sides, all of them at once: several streams
  /// keep more lines in flight than one. The array must outlive the object.
  ReadAhead(const std::byte* const* blocks, std::size_t n_blocks, std::uint64_t block_bytes)
      : blocks_(blocks), n_blocks_(n_blocks), block_bytes_(n_blocks == 0 ? 0 : block_bytes) {}

  /// A phase begins that will call Step `n_step` times (a hint: more or fewer cost only time). The
  /// phase's share of the lines is spread over them.
  void Begin(Phase phase, std::size_t n_step) {
    const std::uint64_t n_line = block_bytes_ / kLine;
    const std::uint64_t goal = n_line * ShareUpTo(phase) / kShares;
    const std::uint64_t done = offset_ / kLine;
    rate_ = goal <= done || n_step == 0 ? 0 : ((goal - done) * kOne + n_step - 1) / n_step;
    credit_ = 0;
  }

  void Step() {
    credit_ += rate_;
    for (; credit_ >= kOne && offset_ < block_bytes_; credit_ -= kOne) {
      for (std::size_t b = 0; b < n_blocks_; ++b) __builtin_prefetch(blocks_[b] + offset_, 0, 2);
      offset_ += kLine;
    }
  }

 private:
  static constexpr std::uint64_t kLine = 64;
  static constexpr std::uint64_t kOne = 1 << 10;  // one line of each block, in units of credit
  static constexpr std::uint64_t kShares = 16;

  // Scores and sums take about the same time, the softmax an eighth of both together.
  static constexpr std::uint64_t ShareUpTo(Phase phase) {
    return phase == Phase::kScore ? 7 : phase == Phase::kSoftmax ? 9 : kShares;
  }

  const std::byte* const* blocks_ = nullptr;
  std::size_t n_blocks_ = 0;
  std::uint64_t block_bytes_ = 0;
  std::uint64_t offset_ = 0;
  std::uint64_t rate_ = 0;
  std::uint64_t credit_ = 0;
};

}  // namespace kvant

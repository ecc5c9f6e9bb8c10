// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Memory that the next run of blocks will read, brought into the cache while this run is computed.
// Blocks lie apart, where a hardware prefetcher does not follow, and a core holds few outstanding
// lines: all phases of a run (scores, softmax, sums) must ask for their share, or the memory rests
// in one and is waited for in another.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace kvant {

class ReadAhead {
 public:
  /// Nothing to read.
  ReadAhead() = default;
  /// Blocks of `block_bytes` (a multiple of 64), both sides. `n_step` is how many times Step will
  /// be called; the lines are shared out evenly, over all blocks at once: several streams keep more
  /// lines in flight than one. The array must outlive the object.
  ReadAhead(const std::byte* const* blocks, std::size_t n_blocks, std::uint64_t block_bytes,
            std::size_t n_step)
      : blocks_(blocks),
        n_blocks_(n_blocks),
        block_bytes_(n_blocks == 0 ? 0 : block_bytes),
        step_bytes_((block_bytes / kLine + n_step - 1) / n_step * kLine) {}

  void Step() {
    const std::uint64_t end = std::min(offset_ + step_bytes_, block_bytes_);
    for (; offset_ < end; offset_ += kLine) {
      for (std::size_t b = 0; b < n_blocks_; ++b) __builtin_prefetch(blocks_[b] + offset_, 0, 3);
    }
  }

 private:
  static constexpr std::uint64_t kLine = 64;

  const std::byte* const* blocks_ = nullptr;
  std::size_t n_blocks_ = 0;
  std::uint64_t block_bytes_ = 0;
  std::uint64_t step_bytes_ = 0;
  std::uint64_t offset_ = 0;
};

}  // namespace kvant

// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Items of a parallel loop that read memory one after the other: each thread sweeps over a range of its
// own, so it knows what it will read next, and takes items from the end of another's when its own are
// done, so no thread waits long for another.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace kvant {

class Sweep {
 public:
  /// For at most `max_ranges` ranges at a time.
  explicit Sweep(std::size_t max_ranges);

  /// Items [0, n_items) in n_ranges contiguous ranges of about the same length; every item is taken once.
  /// n_ranges in [1, max_ranges], n_items < 2^32. Not while others take.
  void Start(std::size_t n_items, std::size_t n_ranges);
  /// The next item for the thread that sweeps over `range`: the first that is left of its range, then
  /// the last of whichever range has most left. Empty when all are taken. Any thread, at any time.
  std::optional<std::size_t> Take(std::size_t range);
  /// What Take would return if nothing is taken meanwhile and the range is not empty.
  std::optional<std::size_t> Peek(std::size_t range) const;

 private:
  struct alignas(64) Range {
    std::atomic<std::uint64_t> bounds{0};  // begin << 32 | end
  };

  std::vector<Range> ranges_;
  std::size_t n_ranges_ = 0;
};

}  // namespace kvant

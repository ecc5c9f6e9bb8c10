// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "base/sweep.h"

#include "base/error.h"

namespace kvant {
namespace {

struct Bounds {
  std::uint64_t begin;
  std::uint64_t end;
  std::uint64_t size() const { return end - begin; }
};

Bounds Unpack(std::uint64_t packed) { return {packed >> 32, packed & UINT32_MAX}; }
std::uint64_t Pack(std::uint64_t begin, std::uint64_t end) { return begin << 32 | end; }

}  // namespace

Sweep::Sweep(std::size_t max_ranges) : ranges_(max_ranges) {}

void Sweep::Start(std::size_t n_items, std::size_t n_ranges) {
  KVANT_CHECK(n_ranges >= 1 && n_ranges <= ranges_.size() && n_items < UINT32_MAX);
  n_ranges_ = n_ranges;
  for (std::size_t r = 0; r < n_ranges; ++r) {
    const std::uint64_t bounds = Pack(r * n_items / n_ranges, (r + 1) * n_items / n_ranges);
    ranges_[r].bounds.store(bounds, std::memory_order_relaxed);
  }
}

std::optional<std::size_t> Sweep::Take(std::size_t range) {
  std::atomic<std::uint64_t>& own = ranges_[range].bounds;
  std::uint64_t seen = own.load(std::memory_order_relaxed);
  for (Bounds b = Unpack(seen); b.size() > 0; b = Unpack(seen)) {
    if (own.compare_exchange_weak(seen, Pack(b.begin + 1, b.end), std::memory_order_relaxed)) {
      return b.begin;
    }
  }
  for (;;) {
    std::size_t longest = 0;
    Bounds most = {0, 0};
    for (std::size_t r = 0; r < n_ranges_; ++r) {
      const Bounds b = Unpack(ranges_[r].bounds.load(std::memory_order_relaxed));
      if (b.size() > most.size()) {
        longest = r;
        most = b;
      }
    }
    if (most.size() == 0) return std::nullopt;
    std::uint64_t expected = Pack(most.begin, most.end);
    if (ranges_[longest].bounds.compare_exchange_weak(expected, Pack(most.begin, most.end - 1),
                                                      std::memory_order_relaxed)) {
      return most.end - 1;
    }
  }
}

std::optional<std::size_t> Sweep::Peek(std::size_t range) const {
  const Bounds b = Unpack(ranges_[range].bounds.load(std::memory_order_relaxed));
  if (b.size() == 0) return std::nullopt;
  return b.begin;
}

}  // namespace kvant

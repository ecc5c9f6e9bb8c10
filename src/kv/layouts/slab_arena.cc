// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/layouts/slab_arena.h"

#include <algorithm>
#include <cstring>

#include "base/memory.h"

namespace kvant {
namespace {

constexpr std::uint64_t kLargestSlab = std::uint64_t{2} << 20;  // a huge page
constexpr std::uint64_t kSmallestSlab = std::uint64_t{256} << 10;
constexpr std::uint64_t kLongestRun = std::uint64_t{1024} << 10;

}  // namespace

std::byte* SlabArena::Take(std::uint64_t bytes, std::size_t stream) {
  std::byte*& given_back = given_back_[bytes];
  std::byte* data = given_back;
  if (data != nullptr) {
    std::memcpy(&given_back, data, sizeof(given_back));
    std::memset(data, 0, bytes);
  } else {
    Stream& run = streams_[{bytes, stream}];
    if (run.next == run.end) Refill(run, bytes);
    data = std::exchange(run.next, run.next + bytes);
    run.taken_bytes += bytes;
  }
  ++n_taken_;
  return data;
}

void SlabArena::Refill(Stream& stream, std::uint64_t block_bytes) {
  const std::uint64_t wanted =
      std::clamp(stream.taken_bytes / 8, block_bytes, std::max(kLongestRun, block_bytes));
  if (static_cast<std::uint64_t>(end_ - next_) < block_bytes) AddSlab(block_bytes);
  const std::uint64_t run =
      std::min(wanted, static_cast<std::uint64_t>(end_ - next_)) / block_bytes * block_bytes;
  stream.next = next_;
  stream.end = next_ + run;
  next_ += run;
}

// Slabs grow with what is there, so that a short context does not reserve a huge page for a few
// blocks.
void SlabArena::AddSlab(std::uint64_t at_least) {
  const std::uint64_t quarter =
      (reserved_bytes_ / 4 + kSmallestSlab - 1) / kSmallestSlab * kSmallestSlab;
  const std::uint64_t bytes =
      std::max(std::clamp(quarter, kSmallestSlab, kLargestSlab),
               (at_least + kSmallestSlab - 1) / kSmallestSlab * kSmallestSlab);
  slabs_.reserve(slabs_.size() + 1);
  next_ = AllocateUncounted(bytes, MemoryTag::kKv);
  end_ = next_ + bytes;
  slabs_.push_back({next_, bytes});
  reserved_bytes_ += bytes;
}

void SlabArena::Give(std::byte* data, std::uint64_t bytes) noexcept {
  if (--n_taken_ == 0) return ReleaseAll();
  std::byte*& given_back = given_back_.find(bytes)->second;  // Take made it
  std::memcpy(data, &given_back, sizeof(given_back));
  given_back = data;
}

void SlabArena::ReleaseAll() noexcept {
  for (const Slab& slab : slabs_) FreeUncounted(slab.data, slab.bytes);
  slabs_.clear();
  streams_.clear();
  given_back_.clear();
  next_ = end_ = nullptr;
  reserved_bytes_ = 0;
}

}  // namespace kvant

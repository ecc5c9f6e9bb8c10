// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Memory of blocks. Attention reads the blocks of one head in order, and reads fast only where they
// follow each other in memory, in large pages (docs/design/006-integer-attention.md). So blocks are
// cut out of slabs of up to 2 MiB on huge pages, and each stream (a head) gets several in a row: an
// eighth of what it has, 1 MiB at most. What is reserved and not used is bounded by that eighth
// and by one slab.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace kvant {

class SlabArena {
 public:
  SlabArena() = default;
  ~SlabArena() { ReleaseAll(); }
  SlabArena(const SlabArena&) = delete;
  SlabArena& operator=(const SlabArena&) = delete;

  /// Largest block that is cut out of a slab.
  static constexpr std::uint64_t kMaxBlockBytes = std::uint64_t{1} << 20;

  /// `bytes` zeroed bytes aligned to 64; bytes is a multiple of 64, above 0 and at most
  /// kMaxBlockBytes. Throws Error(kResourceExhausted) where the system has no memory.
  std::byte* Take(std::uint64_t bytes, std::size_t stream);
  /// Gives back what Take gave for `bytes`. Slabs go back to the system when nothing is taken any
  /// more.
  void Give(std::byte* data, std::uint64_t bytes) noexcept;

  /// Of all slabs, used or not.
  std::uint64_t reserved_bytes() const { return reserved_bytes_; }

 private:
  struct Slab {
    std::byte* data;
    std::uint64_t bytes;
  };
  /// The run of blocks that a stream takes from next.
  struct Stream {
    std::byte* next = nullptr;
    std::byte* end = nullptr;
    std::uint64_t taken_bytes = 0;
  };

  void Refill(Stream& stream, std::uint64_t block_bytes);
  void AddSlab(std::uint64_t at_least);
  void ReleaseAll() noexcept;

  std::vector<Slab> slabs_;
  std::byte* next_ = nullptr;  // free rest of the last slab
  std::byte* end_ = nullptr;
  std::map<std::pair<std::uint64_t, std::size_t>, Stream> streams_;  // by (block bytes, stream)
  /// By block bytes: blocks given back, each holding the pointer to the next.
  std::map<std::uint64_t, std::byte*> given_back_;
  std::uint64_t reserved_bytes_ = 0;
  std::size_t n_taken_ = 0;
};

}  // namespace kvant

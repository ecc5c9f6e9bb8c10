// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Where blocks live: reference-counted runs of bytes, counted by size class under one hard byte limit.
// Knows nothing of codecs; a block is as many bytes as the caller says.
//
// Not thread-safe: one session at a time changes its tables (sessions of an engine take turns).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "kv/layouts/slab_arena.h"

namespace kvant {

class BlockPool;

namespace internal {
struct BlockNode {
  BlockPool* pool;
  std::byte* data;
  std::uint64_t bytes;
  std::uint32_t n_refs;
  bool own_allocation;  // else cut out of a slab
};
}  // namespace internal

/// A share in one block. Copying shares, destroying the last share frees the bytes.
class BlockRef {
 public:
  BlockRef() = default;
  ~BlockRef() { Release(); }
  BlockRef(const BlockRef& other) : node_(other.node_), data_(other.data_) {
    if (node_ != nullptr) ++node_->n_refs;
  }
  BlockRef(BlockRef&& other) noexcept
      : node_(std::exchange(other.node_, nullptr)), data_(std::exchange(other.data_, nullptr)) {}
  BlockRef& operator=(BlockRef other) noexcept {
    std::swap(node_, other.node_);
    std::swap(data_, other.data_);
    return *this;
  }

  explicit operator bool() const { return node_ != nullptr; }
  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return node_ == nullptr ? 0 : node_->bytes; }
  /// Does someone else (a fork, a snapshot) hold this block too? Then it must not be written.
  bool shared() const { return node_ != nullptr && node_->n_refs > 1; }

 private:
  friend class BlockPool;
  explicit BlockRef(internal::BlockNode* node) : node_(node), data_(node->data) {}
  void Release() noexcept;

  internal::BlockNode* node_ = nullptr;
  std::byte* data_ = nullptr;  // node_->data: attention walks thousands of blocks and should not read nodes too
};

class BlockPool {
 public:
  /// `limit_bytes` bounds the bytes of all live blocks; 0: no limit.
  explicit BlockPool(std::uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// A zeroed block of RoundedBytes(bytes), aligned to 64. Blocks of one stream are near each other in memory,
  /// in the order of allocation. Throws Error(kResourceExhausted) where the limit would be passed; nothing
  /// has changed then.
  BlockRef Allocate(std::uint64_t bytes, std::size_t stream = 0);
  /// A block of its own with the same bytes.
  BlockRef Clone(const BlockRef& block);
  /// What a request of `bytes` costs: the next multiple of 64.
  static constexpr std::uint64_t RoundedBytes(std::uint64_t bytes) { return (bytes + 63) / 64 * 64; }

  std::uint64_t limit_bytes() const { return limit_bytes_; }
  std::uint64_t resident_bytes() const { return resident_bytes_; }
  std::uint64_t peak_bytes() const { return peak_bytes_; }
  /// Live blocks of each block size.
  const std::map<std::uint64_t, std::size_t>& size_classes() const { return n_live_; }
  /// What the pool has from the system, more than resident_bytes() by what is kept for the next blocks.
  std::uint64_t reserved_bytes() const { return arena_.reserved_bytes(); }

 private:
  friend class BlockRef;
  void Free(internal::BlockNode* node) noexcept;

  SlabArena arena_;
  std::uint64_t limit_bytes_;
  std::uint64_t resident_bytes_ = 0;
  std::uint64_t peak_bytes_ = 0;
  std::map<std::uint64_t, std::size_t> n_live_;
};

}  // namespace kvant

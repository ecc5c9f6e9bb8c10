// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/layouts/block_pool.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/memory.h"

namespace kvant {

void BlockRef::Release() noexcept {
  if (node_ == nullptr) return;
  if (--node_->n_refs == 0) node_->pool->Free(node_);
  node_ = nullptr;
  data_ = nullptr;
}

// A pool that dies before its blocks would leave them dangling; the owner (the engine) outlives them.
BlockPool::~BlockPool() = default;

BlockRef BlockPool::Allocate(std::uint64_t bytes, std::size_t stream) {
  const std::uint64_t rounded = RoundedBytes(bytes);
  if (limit_bytes_ != 0 && (rounded > limit_bytes_ || resident_bytes_ > limit_bytes_ - rounded)) {
    Fail(ErrorCode::kResourceExhausted,
         "the KV cache holds {} bytes and a block of {} more would pass its limit of {} bytes; raise "
         "--kv-limit, shorten the text or choose a smaller method",
         resident_bytes_, rounded, limit_bytes_);
  }
  auto node = std::make_unique<internal::BlockNode>();
  node->pool = this;
  node->bytes = rounded;
  node->n_refs = 1;
  std::size_t& n_live = n_live_[rounded];
  node->own_allocation = rounded > SlabArena::kMaxBlockBytes || AllocationsAreWatched();
  if (node->own_allocation) {
    node->data = AllocateTagged(rounded, MemoryTag::kKv);
  } else {
    node->data = arena_.Take(rounded, stream);
    CountTagged(rounded, MemoryTag::kKv);
  }
  ++n_live;
  resident_bytes_ += rounded;
  peak_bytes_ = std::max(peak_bytes_, resident_bytes_);
  return BlockRef(node.release());
}

BlockRef BlockPool::Clone(const BlockRef& block) {
  BlockRef copy = Allocate(block.bytes());
  std::memcpy(copy.data(), block.data(), block.bytes());
  return copy;
}

void BlockPool::Free(internal::BlockNode* node) noexcept {
  if (node->own_allocation) {
    FreeTagged(node->data, node->bytes, MemoryTag::kKv);
  } else {
    arena_.Give(node->data, node->bytes);
    UncountTagged(node->bytes, MemoryTag::kKv);
  }
  resident_bytes_ -= node->bytes;
  --n_live_[node->bytes];
  delete node;
}

}  // namespace kvant

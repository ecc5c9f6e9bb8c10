// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The KV cache of one sequence: which bytes hold which token, in which form a query reads them, and
// what it all costs. It stores; attention (kv/attention) computes.
//
// Reading rule. A query at position t reads block b packed when 64 * (b + 1) + window <= t, otherwise
// its exact 16-bit rows; the first `sink` tokens are always read exact. Every path obeys it (decode,
// prefill in any chunking, verification of several tokens), so all of them read the same bytes.
//
// With `tail=packed` there is no exact form: every row is packed as it comes and always read packed (the
// published method; the open block too).
//
// Life of a row. Append writes it exact into the open block of its head, and packs every block that a
// query of this step or the next may read packed; the exact rows stay for the earlier queries of the step.
// FinishLayer says that all queries of the step have read this layer: it frees the exact rows that the rule
// no longer lets anyone read, so that one layer at a time holds both forms. Commit(t) ends the step.
// Neither allocates, neither can fail. Attending never frees. For fp16 and bf16 the exact rows are the
// packed form and stay.
//
// Packed keys go through the method's key transform (transforms/key_transform.h), whose state is learned
// from the first rows and queries; StateOf a head is part of the cache and of its byte counts.
//
// Bytes, three counts with three names (docs/kv-vocabulary.md):
//   payload   what the format needs for the tokens held, state and sink rows included
//   resident  what the allocator holds for this cache now (whole blocks)
//   peak      the high-water mark of the pool
//
// Blocks are reference counted: Fork and Snapshot share them, and a shared block is copied before it is
// written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kv/layouts/block_pool.h"
#include "kv/resolved_method.h"

namespace kvant {

/// One block of one head. At least one form is there below the length of the cache.
struct BlockEntry {
  BlockRef packed;
  BlockRef exact;
};

/// Everything cached for one (layer, KV head).
struct HeadTable {
  std::vector<BlockEntry> blocks;
  BlockRef sink_rows;  // [sink, head_dim] keys, then [sink, head_dim] values, exact 16-bit type
  // State of the key transform (empty without one):
  BlockRef energy;                 // query energy [head_dim] floats
  std::size_t n_energy = 0;        // positions [0, n_energy) were offered to it
  std::vector<BlockRef> versions;  // center [head_dim], lambda [head_dim] floats

  const float* version(std::size_t i) const {
    return reinterpret_cast<const float*>(versions[i].data());
  }
};

class KvCache {
 public:
  /// `pool` must outlive the cache. `isa` chooses the encode kernels.
  KvCache(std::shared_ptr<const Method> method, BlockPool* pool, Isa isa);

  const Method& method() const { return *method_; }
  const CacheGeometry& geometry() const { return method_->geometry(); }
  /// Committed tokens.
  std::size_t length() const { return state_.length; }

  /// Throws Error(kResourceExhausted) where a step of n tokens would pass the pool's limit at any moment.
  /// A step that passed this check does not run out of memory half-way.
  void CheckRoom(std::size_t n) const;
  /// Writes the rows of positions [length(), length() + n) of one layer: keys and values
  /// [n, n_kv_head, head_dim], keys after RoPE. `queries` [n, n_kv_head * heads_per_kv, head_dim] are read
  /// where the method's smoothing needs them (KeyTransform::needs_queries) and may be nullptr elsewhere.
  /// Throws Error: kInvalidArgument names layer, head and token of a value that the exact type or the
  /// codec cannot hold; kResourceExhausted at the pool's limit. After an error call Rollback.
  /// `threads` share the packing of blocks; the bytes do not depend on them.
  void Append(std::size_t layer, std::size_t n, const float* keys, const float* values,
              const float* queries = nullptr, ThreadPool* threads = nullptr);
  /// All queries below t have read this layer (appended up to exactly t). Optional: Commit does the same.
  void FinishLayer(std::size_t layer, std::size_t t);
  /// Packs what the length asks to be packed ahead (LayerMethod::PackedAhead). Append does so by itself; this is
  /// for a cache whose blocks came from elsewhere. Throws Error like Append.
  void PackAhead();
  /// Declares every position below t final (t >= length(), all layers appended up to exactly t).
  void Commit(std::size_t t);
  /// Forgets what was appended after the last Commit. Returns length(), or what Truncate would reach
  /// where the old length cannot be had back.
  std::size_t Rollback();

  /// Goes back to position t <= length(), or to the latest snapshot at or before t (0 where there is none)
  /// where t cannot be had back: rows that the rule reads exact at t are gone, or the smoothing's sums over
  /// the first 64 + window positions have counted queries beyond t. Returns the position reached.
  std::size_t Truncate(std::size_t t);
  /// Keeps what is needed to return to length() exactly. Costs one copy of the open block of each head
  /// when it is next written, and the exact rows of the window.
  void Snapshot();
  std::size_t n_snapshots() const { return snapshots_.size(); }
  /// A cache with the same past (snapshots are not taken along).
  KvCache Fork() const;

  const HeadTable& head(std::size_t layer, std::size_t kv_head) const {
    return state_.heads[layer * geometry().n_kv_head + kv_head];
  }

  /// The rows of one head as a query after the last token reads them (sinks aside, which are read exact),
  /// transforms undone: [length(), head_dim]. For inspection and tests.
  std::vector<float> Rows(std::size_t layer, std::size_t kv_head, Side side) const;

  /// Tokens of the first layer that are held packed alone, counted over the blocks that are there.
  std::size_t packed_tokens() const;
  std::uint64_t payload_bytes() const { return method_->Predict(length()).payload; }
  /// Counted over the blocks that the tables of this cache name (snapshots aside).
  std::uint64_t resident_bytes() const;
  const BlockPool& pool() const { return *pool_; }

 private:
  friend struct StateAccess;  // kv/state.cc: a cache out of a saved state

  struct State {
    std::size_t length = 0;
    std::vector<HeadTable> heads;  // [n_layer * n_kv_head]
  };

  HeadTable& MutableHead(std::size_t layer, std::size_t kv_head) {
    return state_.heads[layer * geometry().n_kv_head + kv_head];
  }
  std::uint64_t SharedBytes(std::size_t layer, std::size_t n) const;
  static BlockRef& Writable(BlockPool& pool, BlockRef& block, std::uint64_t bytes, std::size_t stream);
  /// Blocks of one head are allocated as one stream.
  std::size_t StreamOf(std::size_t layer, std::size_t kv_head) const {
    return layer * geometry().n_kv_head + kv_head;
  }
  void AppendHead(std::size_t layer, std::size_t kv_head, std::size_t n, const float* keys,
                  const float* values);
  void EncodeRows(std::size_t layer, std::size_t kv_head, Side side, const SideMethod& form,
                  const EncodeArgs& args, std::size_t position) const;
  void AddQueries(const LayerMethod& method, std::size_t kv_head, std::size_t n, const float* queries,
                  HeadTable& table);
  /// One side of a block that is to be packed; independent of all others.
  struct PackJob {
    std::size_t kv_head;
    std::size_t block;
    Side side;
  };
  void PackHead(std::size_t layer, std::size_t kv_head, std::size_t n_packed, std::vector<PackJob>& jobs);
  void PackSide(std::size_t layer, const PackJob& job);
  void PackSides(std::size_t layer, const std::vector<PackJob>& jobs, ThreadPool* threads);
  void CopySinkRows(const LayerMethod& method, HeadTable& table);
  void FreezeVersion(const LayerMethod& method, std::size_t kv_head, std::size_t version,
                     HeadTable& table);
  std::vector<float> BlockRows(const LayerMethod& method, const HeadTable& table, std::size_t block,
                               Side side, bool packed) const;
  std::vector<float> ExactRows(const LayerMethod& method, const HeadTable& table, std::size_t block,
                               Side side) const {
    return BlockRows(method, table, block, side, false);
  }
  bool CanReturnTo(std::size_t t) const;

  std::shared_ptr<const Method> method_;
  BlockPool* pool_;
  Isa isa_;
  State state_;
  std::vector<State> snapshots_;  // by increasing length
};

}  // namespace kvant

// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/cache.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "kv/cache_sides.h"

namespace kvant {
KvCache::KvCache(std::shared_ptr<const Method> method, BlockPool* pool, Isa isa)
    : method_(std::move(method)), pool_(pool), isa_(isa) {
  state_.heads.resize(geometry().n_layer * geometry().n_kv_head);
  for (std::size_t i = 0; i < geometry().n_layer; ++i) {
    const LayerMethod& layer = method_->layer(i);
    for (const SideMethod* side :
         {&layer.key, &layer.value, &layer.exact_key, &layer.exact_value}) {
      KernelSetOf(*side->codec, isa_);  // a missing kernel is refused here, not at step 400
    }
  }
}

// A block that a fork or snapshot holds too is copied before it is written (the open block alone is), and stays
// when it is freed here (exact rows of blocks that this step packs).
std::uint64_t KvCache::SharedBytes(std::size_t layer, std::size_t n) const {
  const LayerMethod& method = method_->layer(layer);
  const std::size_t n_whole = length() / kBlockTokens;
  const std::size_t n_packed = method.HeldPacked(length() + n);
  std::uint64_t bytes = 0;
  for (std::size_t kv_head = 0; kv_head < geometry().n_kv_head; ++kv_head) {
    const HeadTable& table = head(layer, kv_head);
    for (std::size_t block = 0; block < table.blocks.size(); ++block) {
      const BlockEntry& entry = table.blocks[block];
      if (entry.exact.shared() && (block >= n_whole || block < n_packed)) bytes += entry.exact.bytes();
      if (entry.packed.shared() && block >= n_whole) bytes += entry.packed.bytes();
    }
    if (table.energy.shared()) bytes += table.energy.bytes();
  }
  return bytes;
}

void KvCache::CheckRoom(std::size_t n) const {
  const std::uint64_t limit = pool_->limit_bytes();
  if (limit == 0) return;
  const std::uint64_t held = method_->Predict(length()).resident;
  std::uint64_t needed = method_->PredictStepPeak(length(), length() + n) - held;
  // What is shared is part of what is held: with room for all of it, as nearly always, no block is looked at.
  if (pool_->resident_bytes() + needed + held <= limit) return;
  for (std::size_t layer = 0; layer < geometry().n_layer; ++layer) needed += SharedBytes(layer, n);
  if (pool_->resident_bytes() + needed <= limit) return;
  Fail(ErrorCode::kResourceExhausted,
       "the KV cache needs {} more bytes for {} more tokens and would pass its limit of {} bytes ({} are in "
       "use); raise the limit, shorten the text or choose a smaller method",
       needed, n, limit, pool_->resident_bytes());
}

// The block, ready to be written: made where there is none, copied where someone else holds it too.
BlockRef& KvCache::Writable(BlockPool& pool, BlockRef& block, std::uint64_t bytes, std::size_t stream) {
  if (!block) {
    block = pool.Allocate(bytes, stream);
  } else if (block.shared()) {
    block = pool.Clone(block);
  }
  return block;
}

void KvCache::Append(std::size_t layer, std::size_t n, const float* keys, const float* values,
                     const float* queries, ThreadPool* threads) {
  if (n == 0) return;
  const LayerMethod& method = method_->layer(layer);
  if (method_->spec().key_transform.mean == KeyMean::kRope && length() + n > RopePhases::kMaxTokens) {
    Fail(ErrorCode::kInvalidArgument, "k_mean=rope reaches {} tokens; use another k_mean for longer texts",
         RopePhases::kMaxTokens);
  }
  std::vector<PackJob> jobs;
  for (std::size_t kv_head = 0; kv_head < geometry().n_kv_head; ++kv_head) {
    AppendHead(layer, kv_head, n, keys, values);
    if (method.energy_bytes() > 0) {
      AddQueries(method, kv_head, n, queries, MutableHead(layer, kv_head));
    }
    // Also what only the query after this step reads packed: Commit must not need memory.
    if (!method.pack_tail) {
      const std::size_t t = length() + n;
      PackHead(layer, kv_head, method.HeldPacked(t) + method.PackedAhead(t), jobs);
    }
  }
  PackSides(layer, jobs, threads);
}

// Encodes and names the place of a value that does not fit.
void KvCache::EncodeRows(std::size_t layer, std::size_t kv_head, Side side, const SideMethod& form,
                         const EncodeArgs& args, std::size_t position) const {
  const std::size_t stored = KernelSetOf(*form.codec, isa_).encode(side, args);
  if (stored == args.n_rows) return;
  Fail(ErrorCode::kInvalidArgument,
       "a {} of layer {}, KV head {}, token {} is not a finite number that {} can hold; the model's values "
       "overflow this type (try --kv bf16) or its weights are damaged",
       side == Side::kKey ? "key" : "value", layer, kv_head, position + stored, form.codec->name);
}

void KvCache::AppendHead(std::size_t layer, std::size_t kv_head, std::size_t n, const float* keys,
                         const float* values) {
  const LayerMethod& method = method_->layer(layer);
  HeadTable& table = MutableHead(layer, kv_head);
  const bool packed = method.pack_tail && !method.identity;
  const std::size_t row_stride = geometry().n_kv_head * geometry().head_dim;
  const std::size_t head_offset = kv_head * geometry().head_dim;
  for (std::size_t done = 0; done < n;) {
    const std::size_t position = length() + done;
    const std::size_t block = position / kBlockTokens;
    const std::size_t slot = position % kBlockTokens;
    const std::size_t n_rows = std::min(n - done, kBlockTokens - slot);
    if (table.blocks.size() <= block) table.blocks.resize(block + 1);
    const std::size_t stream = StreamOf(layer, kv_head);
    const BlockRef& data =
        packed ? Writable(*pool_, table.blocks[block].packed, method.packed_block_bytes(), stream)
               : Writable(*pool_, table.blocks[block].exact, method.exact_block_bytes(), stream);
    const SideMethod& key = packed ? method.key : method.exact_key;
    for (const Side side : {Side::kKey, Side::kValue}) {
      const SideMethod& form = packed ? SideOf(method, side) : ExactSideOf(method, side);
      const float* rows = (side == Side::kKey ? keys : values) + done * row_stride + head_offset;
      EncodeRows(layer, kv_head, side, form,
                 {.config = form.config.get(),
                  .head_dim = geometry().head_dim,
                  .rows = rows,
                  .row_stride = row_stride,
                  .n_rows = n_rows,
                  .first = slot,
                  .block = SideData(data, side, key.geometry)},
                 position);
    }
    done += n_rows;
  }
}

// Queries of [sink, 64 + window), in the order of their positions whatever the chunks.
void KvCache::AddQueries(const LayerMethod& method, std::size_t kv_head, std::size_t n,
                         const float* queries, HeadTable& table) {
  const std::size_t first = std::max(table.n_energy, length());
  const std::size_t end = std::min(method.StatisticsEnd(), length() + n);
  if (first >= end) return;
  KVANT_CHECK(queries != nullptr);
  float* energy = reinterpret_cast<float*>(
      Writable(*pool_, table.energy, method.energy_bytes(), 0).data());
  const std::size_t rows = geometry().heads_per_kv;
  for (std::size_t position = std::max(first, method.sink); position < end; ++position) {
    const std::size_t row = (position - length()) * geometry().n_kv_head + kv_head;
    method.transform->AddQueries(queries + row * rows * geometry().head_dim, rows, energy);
  }
  table.n_energy = end;
}

void KvCache::FinishLayer(std::size_t layer, std::size_t t) {
  const std::size_t n_packed = method_->layer(layer).HeldPacked(t);
  for (std::size_t kv_head = 0; kv_head < geometry().n_kv_head; ++kv_head) {
    HeadTable& table = MutableHead(layer, kv_head);
    KVANT_CHECK(table.blocks.size() >= BlocksFor(t));
    for (std::size_t block = n_packed; block-- > 0 && table.blocks[block].exact;) {
      KVANT_CHECK(static_cast<bool>(table.blocks[block].packed));
      table.blocks[block].exact = BlockRef();
    }
  }
}

void KvCache::Commit(std::size_t t) {
  KVANT_CHECK(t >= length());
  for (std::size_t layer = 0; layer < geometry().n_layer; ++layer) FinishLayer(layer, t);
  state_.length = t;
}

std::size_t KvCache::Rollback() { return Truncate(length()); }

// Exact rows of every block that a query at t would read exact must be there, and the query statistics must
// not have seen more than the positions below t (a sum cannot be taken back).
bool KvCache::CanReturnTo(std::size_t t) const {
  for (std::size_t layer = 0; layer < geometry().n_layer; ++layer) {
    const std::size_t n_packed = method_->layer(layer).HeldPacked(t);
    for (std::size_t kv_head = 0; kv_head < geometry().n_kv_head; ++kv_head) {
      const HeadTable& table = head(layer, kv_head);
      if (t != 0 && table.n_energy > t) return false;
      for (std::size_t block = n_packed; block < BlocksFor(t); ++block) {
        if (!table.blocks[block].exact) return false;
      }
    }
  }
  return true;
}

std::size_t KvCache::Truncate(std::size_t t) {
  KVANT_CHECK(t <= length());
  while (!snapshots_.empty() && snapshots_.back().length > t) snapshots_.pop_back();
  if (!CanReturnTo(t)) {
    if (snapshots_.empty()) {
      State empty;
      empty.heads.resize(state_.heads.size());
      state_ = std::move(empty);
    } else {
      state_ = snapshots_.back();
    }
    return length();
  }
  state_.length = t;
  for (std::size_t layer = 0; layer < geometry().n_layer; ++layer) {
    const std::size_t n_packed = method_->layer(layer).HeldPacked(t);
    for (std::size_t kv_head = 0; kv_head < geometry().n_kv_head; ++kv_head) {
      HeadTable& table = MutableHead(layer, kv_head);
      if (table.blocks.size() > BlocksFor(t)) table.blocks.resize(BlocksFor(t));
      const std::size_t n_ahead = method_->layer(layer).PackedAhead(t);
      for (std::size_t block = n_packed + n_ahead; block < table.blocks.size(); ++block) {
        table.blocks[block].packed = BlockRef();
      }
      const auto& transform = method_->layer(layer).transform;
      table.versions.resize(transform == nullptr ? 0 : transform->Versions(n_packed));
      if (n_packed == 0) table.sink_rows = BlockRef();  // as in a fresh cache
      if (t == 0) {
        table.energy = BlockRef();
        table.n_energy = 0;
      }
    }
  }
  return t;
}

void KvCache::Snapshot() {
  if (!snapshots_.empty() && snapshots_.back().length == length()) return;
  snapshots_.push_back(state_);
}

KvCache KvCache::Fork() const {
  KvCache fork(method_, pool_, isa_);
  fork.state_ = state_;
  return fork;
}

std::vector<float> KvCache::Rows(std::size_t layer, std::size_t kv_head, Side side) const {
  const LayerMethod& method = method_->layer(layer);
  const HeadTable& table = head(layer, kv_head);
  const std::size_t n_packed = method.HeldPacked(length());
  std::vector<float> rows;
  for (std::size_t block = 0; block < BlocksFor(length()); ++block) {
    const std::vector<float> part = BlockRows(method, table, block, side, block < n_packed);
    rows.insert(rows.end(), part.begin(), part.end());
  }
  rows.resize(length() * geometry().head_dim);
  return rows;
}

std::size_t KvCache::packed_tokens() const {
  if (state_.heads.empty()) return 0;
  const std::vector<BlockEntry>& blocks = state_.heads[0].blocks;
  std::size_t n_packed = 0;
  while (n_packed < blocks.size() && blocks[n_packed].packed && !blocks[n_packed].exact) ++n_packed;
  return std::min(n_packed * kBlockTokens, length());
}

std::uint64_t KvCache::resident_bytes() const {
  std::uint64_t bytes = 0;
  for (const HeadTable& table : state_.heads) {
    bytes += table.sink_rows.bytes() + table.energy.bytes();
    for (const BlockRef& version : table.versions) bytes += version.bytes();
    for (const BlockEntry& entry : table.blocks) bytes += entry.packed.bytes() + entry.exact.bytes();
  }
  return bytes;
}

}  // namespace kvant

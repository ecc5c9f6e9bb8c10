// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/cache.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace kvant {
namespace {

// Start of one side inside a block: keys first, then values.
std::byte* SideData(const BlockRef& block, Side side, const BlockGeometry& key) {
  return block.data() + (side == Side::kKey ? 0 : key.bytes);
}

const SideMethod& SideOf(const LayerMethod& method, Side side) {
  return side == Side::kKey ? method.key : method.value;
}

const SideMethod& ExactSideOf(const LayerMethod& method, Side side) {
  return side == Side::kKey ? method.exact_key : method.exact_value;
}

}  // namespace

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
                     const float* queries) {
  if (n == 0) return;
  const LayerMethod& method = method_->layer(layer);
  if (method_->spec().key_transform.mean == KeyMean::kRope && length() + n > RopePhases::kMaxTokens) {
    Fail(ErrorCode::kInvalidArgument, "k_mean=rope reaches {} tokens; use another k_mean for longer texts",
         RopePhases::kMaxTokens);
  }
  for (std::size_t kv_head = 0; kv_head < geometry().n_kv_head; ++kv_head) {
    AppendHead(layer, kv_head, n, keys, values);
    if (method.energy_bytes() > 0) {
      AddQueries(method, kv_head, n, queries, MutableHead(layer, kv_head));
    }
    // Also what only the query after this step reads packed: Commit must not need memory.
    if (!method.pack_tail) PackHead(layer, kv_head, method.HeldPacked(length() + n));
  }
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

std::vector<float> KvCache::BlockRows(const LayerMethod& method, const HeadTable& table,
                                      std::size_t block, Side side, bool packed) const {
  const std::size_t head_dim = geometry().head_dim;
  const SideMethod& form = packed ? SideOf(method, side) : ExactSideOf(method, side);
  const BlockRef& data = packed ? table.blocks[block].packed : table.blocks[block].exact;
  const BlockGeometry& key = packed ? method.key.geometry : method.exact_key.geometry;
  std::vector<float> tile(kBlockTokens * head_dim);
  KernelSetOf(*form.codec, isa_)
      .decode(side, {.config = form.config.get(),
                     .head_dim = head_dim,
                     .block = SideData(data, side, key),
                     .tile = tile.data()});
  if (side == Side::kValue) return tile;
  if (packed && method.transform != nullptr) {
    method.transform->Undo(table.version(method.transform->VersionOf(block)), block, tile.data());
  }
  std::vector<float> rows(tile.size());  // keys decode with the token index fastest
  for (std::size_t token = 0; token < kBlockTokens; ++token) {
    for (std::size_t dim = 0; dim < head_dim; ++dim) {
      rows[token * head_dim + dim] = tile[dim * kBlockTokens + token];
    }
  }
  return rows;
}

void KvCache::PackHead(std::size_t layer, std::size_t kv_head, std::size_t n_packed) {
  if (n_packed == 0) return;
  const LayerMethod& method = method_->layer(layer);
  HeadTable& table = MutableHead(layer, kv_head);
  if (method.sink_bytes() > 0 && !table.sink_rows) CopySinkRows(method, table);
  // Packed blocks form a prefix, and a version is learned before its first block is packed.
  std::size_t block = n_packed;
  while (block > 0 && !table.blocks[block - 1].packed) --block;
  for (; block < n_packed; ++block) {
    if (method.transform != nullptr) {
      const std::size_t version = method.transform->VersionOf(block);
      if (version == table.versions.size()) FreezeVersion(method, kv_head, version, table);
    }
    PackBlock(layer, kv_head, block);
  }
}

void KvCache::CopySinkRows(const LayerMethod& method, HeadTable& table) {
  const std::size_t head_dim = geometry().head_dim;
  table.sink_rows = pool_->Allocate(method.sink_bytes());
  std::byte* out = table.sink_rows.data();
  for (const Side side : {Side::kKey, Side::kValue}) {
    const SideMethod& exact = ExactSideOf(method, side);
    const std::vector<float> rows = ExactRows(method, table, 0, side);
    // Rows as the value side stores them: token-major. A block's worth is encoded, the sinks are kept.
    std::vector<std::byte> encoded(exact.geometry.bytes);
    KernelSetOf(*exact.codec, isa_)
        .encode(Side::kValue, {.config = exact.config.get(),
                               .head_dim = head_dim,
                               .rows = rows.data(),
                               .row_stride = head_dim,
                               .n_rows = method.sink,
                               .first = 0,
                               .block = encoded.data()});
    const std::size_t bytes = method.sink * exact.geometry.bytes_per_token;
    std::memcpy(out, encoded.data(), bytes);
    out += bytes;
  }
}

// From the 64 + window rows that are exact when the version's first block is packed, whatever the chunking;
// sinks are outliers and stay out of the statistics.
void KvCache::FreezeVersion(const LayerMethod& method, std::size_t kv_head, std::size_t version,
                            HeadTable& table) {
  BlockRef state = pool_->Allocate(method.version_bytes());
  const std::size_t first = method.transform->FirstBlock(version);
  const std::size_t skip = version == 0 ? method.sink : 0;
  std::vector<float> rows;
  for (std::size_t block = first; block <= first + method.window / kBlockTokens; ++block) {
    const std::vector<float> block_rows = ExactRows(method, table, block, Side::kKey);
    rows.insert(rows.end(), block_rows.begin(), block_rows.end());
  }
  const std::size_t head_dim = geometry().head_dim;
  method.transform->Freeze(
      {.rows = rows.data() + skip * head_dim,
       .n_rows = rows.size() / head_dim - skip,
       .position = first * kBlockTokens + skip,
       .energy = method.energy_bytes() > 0 ? reinterpret_cast<const float*>(table.energy.data())
                                           : nullptr,
       .n_queries = (method.StatisticsEnd() - method.sink) * geometry().heads_per_kv,
       .profile = method.profile == nullptr ? nullptr : method.profile + kv_head},
      reinterpret_cast<float*>(state.data()));
  table.versions.push_back(std::move(state));
}

void KvCache::PackBlock(std::size_t layer, std::size_t kv_head, std::size_t block) {
  const LayerMethod& method = method_->layer(layer);
  HeadTable& table = MutableHead(layer, kv_head);
  BlockRef packed = pool_->Allocate(method.packed_block_bytes(), StreamOf(layer, kv_head));
  for (const Side side : {Side::kKey, Side::kValue}) {
    const SideMethod& exact = ExactSideOf(method, side);
    const SideMethod& target = SideOf(method, side);
    std::byte* to = SideData(packed, side, method.key.geometry);
    if (target.codec == exact.codec) {  // the exact type on this side: the bytes as they are
      std::memcpy(to, SideData(table.blocks[block].exact, side, method.exact_key.geometry),
                  exact.geometry.bytes);
      continue;
    }
    std::vector<float> rows = ExactRows(method, table, block, side);
    if (side == Side::kKey && method.transform != nullptr) {
      method.transform->Apply(table.version(method.transform->VersionOf(block)), block, rows.data());
    }
    EncodeRows(layer, kv_head, side, target,
               {.config = target.config.get(),
                .head_dim = geometry().head_dim,
                .rows = rows.data(),
                .row_stride = geometry().head_dim,
                .n_rows = kBlockTokens,
                .first = 0,
                .block = to},
               block * kBlockTokens);
  }
  table.blocks[block].packed = std::move(packed);
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
      for (std::size_t block = n_packed; block < table.blocks.size(); ++block) {
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
  while (n_packed < blocks.size() && blocks[n_packed].packed) ++n_packed;
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

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

const std::byte* StateOf(const LayerMethod& method, const HeadTable& table, Side side) {
  if (SideOf(method, side).state_bytes == 0) return nullptr;
  return table.state.data() +
         (side == Side::kKey ? 0 : BlockPool::RoundedBytes(method.key.state_bytes));
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

BlockRef& KvCache::WritableExact(HeadTable& table, const LayerMethod& method, std::size_t block) {
  if (table.blocks.size() <= block) table.blocks.resize(block + 1);
  BlockRef& exact = table.blocks[block].exact;
  if (!exact) {
    exact = pool_->Allocate(method.exact_block_bytes());
  } else if (exact.shared()) {
    exact = pool_->Clone(exact);
  }
  return exact;
}

void KvCache::Append(std::size_t layer, std::size_t n, const float* keys, const float* values) {
  if (n == 0) return;
  for (std::size_t kv_head = 0; kv_head < geometry().n_kv_head; ++kv_head) {
    AppendHead(layer, kv_head, n, keys, values);
    // Also what only the query after this step reads packed: Commit must not need memory.
    PackHead(layer, kv_head, method_->layer(layer).PackedBlocks(length() + n));
  }
}

void KvCache::AppendHead(std::size_t layer, std::size_t kv_head, std::size_t n, const float* keys,
                         const float* values) {
  const LayerMethod& method = method_->layer(layer);
  HeadTable& table = MutableHead(layer, kv_head);
  const std::size_t row_stride = geometry().n_kv_head * geometry().head_dim;
  const std::size_t head_offset = kv_head * geometry().head_dim;
  for (std::size_t done = 0; done < n;) {
    const std::size_t position = length() + done;
    const std::size_t slot = position % kBlockTokens;
    const std::size_t n_rows = std::min(n - done, kBlockTokens - slot);
    const BlockRef& block = WritableExact(table, method, position / kBlockTokens);
    for (const Side side : {Side::kKey, Side::kValue}) {
      const SideMethod& exact = ExactSideOf(method, side);
      const float* rows = (side == Side::kKey ? keys : values) + done * row_stride + head_offset;
      const EncodeArgs args = {.config = exact.config.get(),
                               .state = nullptr,
                               .head_dim = geometry().head_dim,
                               .rows = rows,
                               .row_stride = row_stride,
                               .n_rows = n_rows,
                               .first = slot,
                               .position = position - slot,
                               .block = SideData(block, side, method.exact_key.geometry)};
      const std::size_t stored = KernelSetOf(*exact.codec, isa_).encode(side, args);
      if (stored != n_rows) {
        Fail(ErrorCode::kInvalidArgument,
             "a {} of layer {}, KV head {}, token {} is not a finite {} number; the model's values "
             "overflow this type (try --kv bf16) or its weights are damaged",
             side == Side::kKey ? "key" : "value", layer, kv_head, position + stored,
             exact.codec->name);
      }
    }
    done += n_rows;
  }
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
                     .state = packed ? StateOf(method, table, side) : nullptr,
                     .head_dim = head_dim,
                     .position = block * kBlockTokens,
                     .block = SideData(data, side, key),
                     .tile = tile.data()});
  if (side == Side::kValue) return tile;
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
  if (!table.blocks[0].packed) FirstPacking(layer, method, table);
  // Packed blocks form a prefix, so the walk back ends at the first block packed before.
  for (std::size_t block = n_packed; block-- > 0 && !table.blocks[block].packed;) {
    PackBlock(method, table, block);
  }
}

void KvCache::FirstPacking(std::size_t layer, const LayerMethod& method, HeadTable& table) {
  if (method.sink_bytes() > 0 && !table.sink_rows) CopySinkRows(method, table);
  if (method.state_bytes() > 0 && !table.state) InitState(layer, method, table);
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
                               .state = nullptr,
                               .head_dim = head_dim,
                               .rows = rows.data(),
                               .row_stride = head_dim,
                               .n_rows = method.sink,
                               .first = 0,
                               .position = 0,
                               .block = encoded.data()});
    const std::size_t bytes = method.sink * exact.geometry.bytes_per_token;
    std::memcpy(out, encoded.data(), bytes);
    out += bytes;
  }
}

void KvCache::InitState(std::size_t layer, const LayerMethod& method, HeadTable& table) {
  table.state = pool_->Allocate(method.state_bytes());
  std::byte* out = table.state.data();
  for (const Side side : {Side::kKey, Side::kValue}) {
    const SideMethod& packed = SideOf(method, side);
    if (packed.state_bytes == 0) continue;
    // The 64 + window rows that are exact when the first block is packed, whatever the chunking;
    // sinks are outliers and stay out of the statistics.
    std::vector<float> rows;
    for (std::size_t block = 0; block <= method.window / kBlockTokens; ++block) {
      const std::vector<float> block_rows = ExactRows(method, table, block, side);
      const std::size_t skip = block == 0 ? method.sink * geometry().head_dim : 0;
      rows.insert(rows.end(), block_rows.begin() + static_cast<std::ptrdiff_t>(skip),
                  block_rows.end());
    }
    packed.codec->init_state({.config = packed.config.get(),
                              .side = side,
                              .layer = layer,
                              .head_dim = geometry().head_dim,
                              .rows = rows.data(),
                              .n_rows = rows.size() / geometry().head_dim,
                              .state = out});
    out += BlockPool::RoundedBytes(packed.state_bytes);
  }
}

void KvCache::PackBlock(const LayerMethod& method, HeadTable& table, std::size_t block) {
  BlockRef packed = pool_->Allocate(method.packed_block_bytes());
  for (const Side side : {Side::kKey, Side::kValue}) {
    const SideMethod& target = SideOf(method, side);
    const SideMethod& exact = ExactSideOf(method, side);
    std::byte* to = SideData(packed, side, method.key.geometry);
    if (target.codec == exact.codec) {
      std::memcpy(to, SideData(table.blocks[block].exact, side, method.exact_key.geometry),
                  exact.geometry.bytes);
      continue;
    }
    const std::vector<float> rows = ExactRows(method, table, block, side);
    const std::size_t stored =
        KernelSetOf(*target.codec, isa_)
            .encode(side, {.config = target.config.get(),
                           .state = StateOf(method, table, side),
                           .head_dim = geometry().head_dim,
                           .rows = rows.data(),
                           .row_stride = geometry().head_dim,
                           .n_rows = kBlockTokens,
                           .first = 0,
                           .position = block * kBlockTokens,
                           .block = to});
    if (stored != kBlockTokens) {
      Fail(ErrorCode::kInvalidArgument, "codec '{}' cannot hold the {} of token {}", target.codec->name,
           side == Side::kKey ? "key" : "value", block * kBlockTokens + stored);
    }
  }
  table.blocks[block].packed = std::move(packed);
}

void KvCache::Commit(std::size_t t) {
  KVANT_CHECK(t >= length());
  state_.length = t;
  for (std::size_t layer = 0; layer < geometry().n_layer; ++layer) {
    const LayerMethod& method = method_->layer(layer);
    const std::size_t n_packed = method.PackedBlocks(t);
    for (std::size_t kv_head = 0; kv_head < geometry().n_kv_head; ++kv_head) {
      HeadTable& table = MutableHead(layer, kv_head);
      KVANT_CHECK(table.blocks.size() >= BlocksFor(t));
      for (std::size_t block = n_packed; block-- > 0 && table.blocks[block].exact;) {
        KVANT_CHECK(static_cast<bool>(table.blocks[block].packed));
        table.blocks[block].exact = BlockRef();
      }
    }
  }
}

void KvCache::Rollback() {
  const std::size_t reached = Truncate(length());
  KVANT_CHECK(reached == length());
}

// Exact rows of every block that a query at t would read exact must be there.
bool KvCache::CanReturnTo(std::size_t t) const {
  for (std::size_t layer = 0; layer < geometry().n_layer; ++layer) {
    const std::size_t n_packed = method_->layer(layer).PackedBlocks(t);
    for (std::size_t kv_head = 0; kv_head < geometry().n_kv_head; ++kv_head) {
      const HeadTable& table = head(layer, kv_head);
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
    const std::size_t n_packed = method_->layer(layer).PackedBlocks(t);
    for (std::size_t kv_head = 0; kv_head < geometry().n_kv_head; ++kv_head) {
      HeadTable& table = MutableHead(layer, kv_head);
      if (table.blocks.size() > BlocksFor(t)) table.blocks.resize(BlocksFor(t));
      for (std::size_t block = n_packed; block < table.blocks.size(); ++block) {
        table.blocks[block].packed = BlockRef();
      }
      if (n_packed == 0) {  // as in a fresh cache: sinks and state are made at the first packing
        table.sink_rows = BlockRef();
        table.state = BlockRef();
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
  const std::size_t n_packed = method.PackedBlocks(length());
  std::vector<float> rows;
  for (std::size_t block = 0; block < BlocksFor(length()); ++block) {
    const std::vector<float> part = BlockRows(method, table, block, side, block < n_packed);
    rows.insert(rows.end(), part.begin(), part.end());
  }
  rows.resize(length() * geometry().head_dim);
  return rows;
}

std::uint64_t KvCache::resident_bytes() const {
  std::uint64_t bytes = 0;
  for (const HeadTable& table : state_.heads) {
    bytes += table.sink_rows.bytes() + table.state.bytes();
    for (const BlockEntry& entry : table.blocks) bytes += entry.packed.bytes() + entry.exact.bytes();
  }
  return bytes;
}

}  // namespace kvant

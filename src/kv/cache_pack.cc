// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// How exact rows become packed ones (cache.h): what is packed when, what is learned before, sinks.
#include <cstring>

#include "kv/cache.h"
#include "kv/cache_sides.h"

namespace kvant {

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

void KvCache::PackHead(std::size_t layer, std::size_t kv_head, std::size_t n_packed,
                       std::vector<PackJob>& jobs) {
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
    table.blocks[block].packed =
        pool_->Allocate(method.packed_block_bytes(), StreamOf(layer, kv_head));
    for (const Side side : {Side::kKey, Side::kValue}) jobs.push_back({kv_head, block, side});
  }
}

void KvCache::CopySinkRows(const LayerMethod& method, HeadTable& table) {
  const std::size_t head_dim = geometry().head_dim;
  table.sink_rows = pool_->Allocate(method.sink_bytes());
  std::byte* out = table.sink_rows.data();
  for (const Side side : {Side::kKey, Side::kValue}) {
    const SideMethod& exact = ExactSideOf(method, side);
    const std::vector<float> rows = ExactRows(method, table, 0, side);
    // Rows as the value side stores them: token-major. A block's worth is encoded, the sinks are
    // kept.
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

// From the 64 + window rows that are exact when the version's first block is packed, whatever the
// chunking; sinks are outliers and stay out of the statistics.
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

void KvCache::PackAhead() {
  for (std::size_t layer = 0; layer < geometry().n_layer; ++layer) {
    const LayerMethod& method = method_->layer(layer);
    if (method.PackedAhead(length()) == 0) continue;
    std::vector<PackJob> jobs;
    for (std::size_t kv_head = 0; kv_head < geometry().n_kv_head; ++kv_head) {
      PackHead(layer, kv_head, method.HeldPacked(length()) + 1, jobs);
    }
    PackSides(layer, jobs, nullptr);
  }
}

void KvCache::PackSides(std::size_t layer, const std::vector<PackJob>& jobs, ThreadPool* threads) {
  const auto pack = [&](std::size_t i, std::size_t) { PackSide(layer, jobs[i]); };
  if (threads != nullptr && jobs.size() > 1) {
    threads->ParallelFor(jobs.size(), pack);
  } else {
    for (std::size_t i = 0; i < jobs.size(); ++i) pack(i, 0);
  }
}

void KvCache::PackSide(std::size_t layer, const PackJob& job) {
  const LayerMethod& method = method_->layer(layer);
  const HeadTable& table = head(layer, job.kv_head);
  const BlockEntry& entry = table.blocks[job.block];
  const SideMethod& exact = ExactSideOf(method, job.side);
  const SideMethod& target = SideOf(method, job.side);
  std::byte* to = SideData(entry.packed, job.side, method.key.geometry);
  if (target.codec == exact.codec) {  // the exact type on this side: the bytes as they are
    std::memcpy(to, SideData(entry.exact, job.side, method.exact_key.geometry),
                exact.geometry.bytes);
    return;
  }
  std::vector<float> rows = ExactRows(method, table, job.block, job.side);
  if (job.side == Side::kKey && method.transform != nullptr) {
    method.transform->Apply(table.version(method.transform->VersionOf(job.block)), job.block,
                            rows.data());
  }
  EncodeRows(layer, job.kv_head, job.side, target,
             {.config = target.config.get(),
              .head_dim = geometry().head_dim,
              .rows = rows.data(),
              .row_stride = geometry().head_dim,
              .n_rows = kBlockTokens,
              .first = 0,
              .block = to},
             job.block * kBlockTokens);
}

}  // namespace kvant

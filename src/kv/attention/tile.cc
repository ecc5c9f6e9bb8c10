// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The tile path of attention: up to 64 query tokens of one aligned tile (attention.h).
#include <algorithm>
#include <cmath>

#include "kv/attention/attention.h"
#include "kv/attention/attention_head.h"

namespace kvant {

Attention::Tile Attention::TileAt(const AttendArgs& args, std::size_t tile) {
  const std::size_t begin = std::max(tile * kBlockTokens, args.first_position);
  const std::size_t end = std::min((tile + 1) * kBlockTokens, args.first_position + args.n_query);
  return {begin - args.first_position, end - begin};
}

void Attention::AttendTile(const Head& head, Tile tile, Worker& worker) {
  const auto [first, n] = tile;
  const std::size_t heads = geometry_.heads_per_kv;
  const std::size_t head_dim = geometry_.head_dim;
  const std::size_t rows = n * heads;
  for (std::size_t token = 0; token < n; ++token) {
    ScaleQuery(head, first + token, worker.query.data() + token * heads * head_dim);
  }
  const Splits splits(head.args->first_position + first, head.args->window);
  std::fill_n(worker.total_max.data(), rows, -INFINITY);
  for (std::size_t split = 0; split < splits.n; ++split) {
    std::fill_n(worker.part.data(), rows * head_dim, 0.0f);
    std::fill_n(worker.part_max.data(), rows, -INFINITY);
    std::fill_n(worker.part_sum.data(), rows, 0.0f);
    const auto [begin, end] = splits[split];
    for (std::size_t b = begin; b < end; ++b) TileBlock(head, b, tile, worker);
    kernels_->merge({.part_output = worker.part.data(),
                     .part_max = worker.part_max.data(),
                     .part_sum = worker.part_sum.data(),
                     .output = worker.total.data(),
                     .max = worker.total_max.data(),
                     .sum = worker.total_sum.data(),
                     .n_rows = rows,
                     .head_dim = head_dim});
  }
  if (head.args->mass != nullptr) KeepTileSums(head, tile, worker);
  kernels_->normalize(worker.total.data(), worker.total_sum.data(), rows, head_dim);
  const std::size_t n_q_head = geometry_.n_kv_head * heads;
  for (std::size_t token = 0; token < n; ++token) {
    std::copy_n(worker.total.data() + token * heads * head_dim, heads * head_dim,
                head.args->output +
                    ((first + token) * n_q_head + head.kv_head * heads) * head_dim);
  }
}

void Attention::DecodeSide(const Head& head, Side side, std::size_t block, bool packed,
                           float* tile) const {
  const SideMethod& method = head.side(side, packed);
  head.kernels->side(side, packed)
      .decode(side, {.config = method.config.get(),
                     .head_dim = geometry_.head_dim,
                     .block = head.data(block, side, packed),
                     .tile = tile});
  if (side == Side::kKey && packed && head.transform() != nullptr) {
    head.transform()->Undo(head.version(block), block, tile);
  }
}

void Attention::LoadKeyTile(const Head& head, std::size_t block, bool packed, Worker& worker) {
  const std::size_t head_dim = geometry_.head_dim;
  DecodeSide(head, Side::kKey, block, packed, worker.key_tile.data());
  if (!packed || block > 0 || !head.has_sinks()) return;
  // Sinks come through the value tile, which is not yet in use.
  const float* keys = SinkRows(head, Side::kKey, worker.value_tile.data());
  for (std::size_t token = 0; token < head.method->sink; ++token) {
    for (std::size_t dim = 0; dim < head_dim; ++dim) {
      worker.key_tile[dim * kBlockTokens + token] = keys[token * head_dim + dim];
    }
  }
}

void Attention::LoadTiles(const Head& head, std::size_t block, bool packed, Worker& worker) {
  LoadKeyTile(head, block, packed, worker);
  DecodeSide(head, Side::kValue, block, packed, worker.value_tile.data());
  if (packed && block == 0 && head.has_sinks()) {
    SinkRows(head, Side::kValue, worker.value_tile.data());
  }
}

void Attention::HideTileTokens(const Head& head, std::size_t block, Tile tile,
                               float* scores) const {
  const auto [first, n] = tile;
  const std::size_t heads = geometry_.heads_per_kv;
  const std::size_t begin = block * kBlockTokens;
  const std::size_t first_position = head.args->first_position + first;
  if (block == first_position / kBlockTokens) {  // the tile's own block: causal
    for (std::size_t row = 0; row < n * heads; ++row) {
      const std::size_t n_visible = (first_position + row / heads) % kBlockTokens + 1;
      std::fill(scores + row * kBlockTokens + n_visible, scores + (row + 1) * kBlockTokens,
                -INFINITY);
    }
  }
  if (head.FirstSeen(first_position + n - 1) <= begin) return;
  for (std::size_t row = 0; row < n * heads; ++row) {
    const std::size_t first_seen = std::max(head.FirstSeen(first_position + row / heads), begin);
    std::fill_n(scores + row * kBlockTokens, std::min(first_seen - begin, kBlockTokens), -INFINITY);
  }
}

void Attention::ScoreTile(const Head& head, std::size_t block, Tile tile, Worker& worker) {
  kernels_->gemm_tile({.a = worker.query.data(),
                       .a_stride = geometry_.head_dim,
                       .b = worker.key_tile.data(),
                       .b_stride = kBlockTokens,
                       .c = worker.scores.data(),
                       .c_stride = kBlockTokens,
                       .n_rows = tile.n * geometry_.heads_per_kv,
                       .k = geometry_.head_dim,
                       .n = kBlockTokens,
                       .c_scale = nullptr,
                       .c_scale_stride = 0});
  HideTileTokens(head, block, tile, worker.scores.data());
}

void Attention::TileBlock(const Head& head, std::size_t block, Tile tile, Worker& worker) {
  const std::size_t n_rows = tile.n * geometry_.heads_per_kv;
  const std::size_t head_dim = geometry_.head_dim;
  // The method's window is a multiple of 64, so the first query of an aligned tile decides for all
  // of them.
  const std::size_t first_position = head.args->first_position + tile.first;
  LoadTiles(head, block, block < head.PackedBlocks(first_position), worker);
  ScoreTile(head, block, tile, worker);
  kernels_->softmax({.scores = worker.scores.data(),
                     .stride = kBlockTokens,
                     .n_rows = n_rows,
                     .n_blocks = 1,
                     .max = worker.part_max.data(),
                     .sum = worker.part_sum.data(),
                     .rescale = worker.rescale.data(),
                     .rescale_stride = 1});
  kernels_->gemm_tile({.a = worker.scores.data(),
                       .a_stride = kBlockTokens,
                       .b = worker.value_tile.data(),
                       .b_stride = head_dim,
                       .c = worker.part.data(),
                       .c_stride = head_dim,
                       .n_rows = n_rows,
                       .k = kBlockTokens,
                       .n = head_dim,
                       .c_scale = worker.rescale.data(),
                       .c_scale_stride = 1});
}

}  // namespace kvant

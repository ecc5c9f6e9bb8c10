// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Softmax mass of cached tokens, for both paths of attention (attention.h). What attention itself
// leaves behind for it is in decode.cc and tile.cc.
#include <algorithm>
#include <optional>

#include "kv/attention/attention.h"
#include "kv/attention/attention_head.h"

namespace kvant {
namespace {

void Grow(std::size_t size, Buffer<float>& buffer) {
  if (size > buffer.size()) buffer = Buffer<float>(size, MemoryTag::kScratch);
}

}  // namespace

void Attention::StartDecodeMass(const Splits& splits) {
  mass_.first_block = splits.begin;
  mass_.n_slots = splits.end - splits.begin + 1;
  mass_.max_stride = (mass_.n_slots + 15) / 16 * 16;
  const std::size_t rows = geometry_.n_kv_head * geometry_.heads_per_kv;
  Grow(rows * mass_.n_slots * kBlockTokens, mass_.weights);
  Grow(rows * mass_.max_stride, mass_.max);
}

Attention::ScoreRows Attention::MassRows(std::size_t kv_head, std::size_t slot) {
  const std::size_t row = kv_head * geometry_.heads_per_kv;
  const std::size_t stride = mass_.n_slots * kBlockTokens;
  return {.scores = mass_.weights.data() + row * stride + slot * kBlockTokens,
          .stride = stride,
          .block_max = mass_.max.data() + row * mass_.max_stride + slot,
          .block_max_stride = mass_.max_stride};
}

// Split by split in the order of attention, so that a thread mostly finds the weights that it wrote.
void Attention::AddDecodeMass(const AttendArgs& args, const Splits& splits, ThreadPool& threads) {
  const std::size_t kv_len = args.first_position + 1;
  const auto add = [&](std::size_t kv_head, std::size_t slot, std::size_t first, std::size_t end) {
    const ScoreRows rows = MassRows(kv_head, slot);
    kernels_->add_mass({.weights = rows.scores,
                        .weights_stride = rows.stride,
                        .factors = rows.block_max,
                        .factors_stride = rows.block_max_stride,
                        .n_rows = geometry_.heads_per_kv,
                        .n_tokens = end - first,
                        .mass = args.mass + kv_head * kv_len + first});
  };
  const std::size_t n_ranges = threads.n_threads();
  sweep_.Start(geometry_.n_kv_head * splits.n, n_ranges);
  threads.ParallelFor(n_ranges, [&](std::size_t range, std::size_t) {
    while (const std::optional<std::size_t> item = sweep_.Take(range)) {
      const Head head(args, *item / splits.n, layers_[args.layer]);
      const auto [begin, end] = splits[*item % splits.n];
      add(head.kv_head, begin - splits.begin, begin * kBlockTokens,
          std::min(end * kBlockTokens, kv_len));
      if (begin == 0 && head.reads_sinks()) {
        add(head.kv_head, mass_.n_slots - 1, head.FirstSeen(args.first_position),
            head.method->sink);
      }
    }
  });
}

void Attention::StartTileMass(const AttendArgs& args) {
  const std::size_t rows = geometry_.n_kv_head * args.n_query * geometry_.heads_per_kv;
  Grow(rows, mass_.max);
  Grow(rows, mass_.inverse_sum);
}

void Attention::KeepTileSums(const Head& head, Tile tile, const Worker& worker) {
  const std::size_t heads = geometry_.heads_per_kv;
  const std::size_t first = (head.kv_head * head.args->n_query + tile.first) * heads;
  for (std::size_t row = 0; row < tile.n * heads; ++row) {
    mass_.max[first + row] = worker.total_max[row];
    mass_.inverse_sum[first + row] = 1 / worker.total_sum[row];
  }
}

// By key block, so that each token's mass is one thread's alone.
void Attention::AddTileMass(const AttendArgs& args, ThreadPool& threads) {
  const std::size_t first = FirstSeen(args.first_position, args.window) / kBlockTokens;
  const std::size_t n = BlocksFor(args.first_position + args.n_query) - first;
  threads.ParallelFor(geometry_.n_kv_head * n, [&](std::size_t item, std::size_t thread) {
    const Head head(args, item / n, layers_[args.layer]);
    AddBlockMass(head, first + item % n, workers_[thread]);
  });
}

// The scores of all queries that see the block once more, in the order of their tiles.
void Attention::AddBlockMass(const Head& head, std::size_t block, Worker& worker) {
  const AttendArgs& args = *head.args;
  const std::size_t heads = geometry_.heads_per_kv;
  const std::size_t kv_len = head.last_position + 1;
  const std::size_t begin = block * kBlockTokens;
  const std::size_t first_tile = std::max(args.first_position / kBlockTokens, block);
  bool loaded = false, loaded_packed = false;
  for (std::size_t t = first_tile; t <= head.last_position / kBlockTokens; ++t) {
    const Tile tile = TileAt(args, t);
    const std::size_t first_position = args.first_position + tile.first;
    if (head.FirstSeen(first_position) >= begin + kBlockTokens) return;  // later ones see less yet
    const bool packed = block < head.PackedBlocks(first_position);
    if (!loaded || packed != loaded_packed) LoadKeyTile(head, block, packed, worker);
    loaded = true;
    loaded_packed = packed;
    for (std::size_t token = 0; token < tile.n; ++token) {
      float* query = worker.query.data() + token * heads * geometry_.head_dim;
      ScaleQuery(head, tile.first + token, query);
    }
    ScoreTile(head, block, tile, worker);
    // With the final maximum to begin with, a step of the softmax makes final weights. Its sums are
    // of no use here.
    const std::size_t row = (head.kv_head * args.n_query + tile.first) * heads;
    std::copy_n(mass_.max.data() + row, tile.n * heads, worker.part_max.data());
    std::fill_n(worker.part_sum.data(), tile.n * heads, 0.0f);
    kernels_->softmax({.scores = worker.scores.data(),
                       .stride = kBlockTokens,
                       .n_rows = tile.n * heads,
                       .n_blocks = 1,
                       .max = worker.part_max.data(),
                       .sum = worker.part_sum.data(),
                       .rescale = worker.rescale.data(),
                       .rescale_stride = 1});
    kernels_->add_mass({.weights = worker.scores.data(),
                        .weights_stride = kBlockTokens,
                        .factors = mass_.inverse_sum.data() + row,
                        .factors_stride = 1,
                        .n_rows = tile.n * heads,
                        .n_tokens = std::min(kv_len - begin, kBlockTokens),
                        .mass = args.mass + head.kv_head * kv_len + begin});
  }
}

}  // namespace kvant

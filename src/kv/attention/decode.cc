// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The decode path of attention: one query token, straight from the blocks (attention.h).
#include <algorithm>
#include <array>
#include <cmath>

#include "kv/attention/attention.h"
#include "kv/attention/attention_head.h"

namespace kvant {
namespace {

void ResetState(const MergeArgs& result) {
  std::fill_n(result.output, result.n_rows * result.head_dim, 0.0f);
  std::fill_n(result.max, result.n_rows, -INFINITY);
  std::fill_n(result.sum, result.n_rows, 0.0f);
}

}  // namespace

MergeArgs Attention::SplitResult(std::size_t kv_head, std::size_t split) {
  const std::size_t rows = geometry_.heads_per_kv;
  const std::size_t first = (kv_head * kMaxSplits + split) * rows;
  MergeArgs result = {};
  result.output = split_output_.data() + first * geometry_.head_dim;
  result.max = split_max_.data() + first;
  result.sum = split_sum_.data() + first;
  result.n_rows = rows;
  result.head_dim = geometry_.head_dim;
  return result;
}

void Attention::Decode(const AttendArgs& args, ThreadPool& threads) {
  const std::size_t n_blocks = args.first_position / kBlockTokens + 1;
  const std::size_t per_split = SplitBlocks(n_blocks);
  const std::size_t n_splits = (n_blocks + per_split - 1) / per_split;
  if (args.cache->method().layer(args.layer).dequantize) RebuildKeys(args, threads);
  const auto attend = [&](std::size_t item, std::size_t thread) {
    const std::size_t split = item / geometry_.n_kv_head;
    const std::size_t kv_head = item % geometry_.n_kv_head;
    const std::size_t begin = split * per_split;
    DecodeSplit(Head(args, kv_head), begin, std::min(begin + per_split, n_blocks),
                workers_[thread], SplitResult(kv_head, split));
  };
  threads.ParallelFor(n_splits * geometry_.n_kv_head, attend);
  for (std::size_t kv_head = 0; kv_head < geometry_.n_kv_head; ++kv_head) {
    MergeDecode(args, kv_head, n_splits);
  }
}

// Queries for the packed keys of a run of blocks that share one version of the key transform.
void Attention::PrepareQuery(const Head& head, std::size_t block, Worker& worker) const {
  const float* query = worker.query.data();
  if (head.transform() != nullptr) {
    head.transform()->TransformQueries(head.version(block), query, geometry_.heads_per_kv,
                                       worker.transformed.data());
    query = worker.transformed.data();
  }
  const SideMethod& key = head.method->key;
  if (key.codec->query_bytes == nullptr || head.method->dequantize) return;
  KernelSetOf(*key.codec, isa_)
      .prepare_query({.config = key.config.get(),
                      .head_dim = geometry_.head_dim,
                      .query = query,
                      .n_query = geometry_.heads_per_kv,
                      .prepared = worker.prepared.data()});
}

// Packed blocks are a prefix, so a split reads packed blocks, then the sinks that stand for masked
// tokens of block 0, then exact blocks. What the value codec must undo on the output is undone between.
void Attention::DecodeSplit(const Head& head, std::size_t begin, std::size_t end, Worker& worker,
                            const MergeArgs& result) {
  ResetState(result);
  ScaleQuery(head, 0, worker.query.data());
  const std::size_t n_packed = std::clamp(head.PackedBlocks(head.last_position), begin, end);
  if (n_packed > begin) {
    DecodePacked(head, begin, n_packed, worker, result);
    const SideMethod& value = head.method->value;
    const auto finish = KernelSetOf(*value.codec, isa_).finish_output;
    for (std::size_t r = 0; finish != nullptr && r < result.n_rows; ++r) {
      finish(*value.config, result.head_dim, result.output + r * result.head_dim);
    }
    if (begin == 0 && head.has_sinks()) DecodeSinks(head, worker, result);
  }
  for (std::size_t b = n_packed; b < end; b += kRunBlocks) {
    DecodeRun(head, b, std::min(kRunBlocks, end - b), false, worker, result);
  }
}

// Runs end where the version of the key transform does.
void Attention::DecodePacked(const Head& head, std::size_t begin, std::size_t end, Worker& worker,
                             const MergeArgs& result) {
  const KeyTransform* transform = head.transform();
  for (std::size_t b = begin; b < end;) {
    std::size_t run_end = std::min(end, b + kRunBlocks);
    if (transform != nullptr) {
      while (transform->VersionOf(run_end - 1) != transform->VersionOf(b)) --run_end;
    }
    const bool same_version =
        b != begin && (transform == nullptr || transform->VersionOf(b) == transform->VersionOf(b - 1));
    if (!same_version) PrepareQuery(head, b, worker);
    DecodeRun(head, b, run_end - b, true, worker, result);
    b = run_end;
  }
}

// The whole packed key history of the layer back to 16-bit rows, as the published system did at every step.
void Attention::RebuildKeys(const AttendArgs& args, ThreadPool& threads) {
  const LayerMethod& method = args.cache->method().layer(args.layer);
  const std::size_t n_packed =
      std::min(method.PackedBlocks(args.first_position), BlocksFor(args.first_position + 1));
  const std::uint64_t bytes = method.exact_key.geometry.bytes;
  if (n_packed > n_rebuilt_) {
    rebuilt_ = Buffer<std::byte>(geometry_.n_kv_head * n_packed * bytes, MemoryTag::kScratch);
    n_rebuilt_ = n_packed;
  }
  const auto rebuild = [&](std::size_t item, std::size_t thread) {
    const std::size_t kv_head = item / n_packed;
    const std::size_t block = item % n_packed;
    const Head head(args, kv_head);
    float* tile = workers_[thread].key_tile.data();
    DecodeSide(head, Side::kKey, block, true, tile);
    KernelSetOf(*method.exact_key.codec, isa_)
        .store_key_tile(geometry_.head_dim, tile,
                        rebuilt_.data() + (kv_head * n_rebuilt_ + block) * bytes);
  };
  threads.ParallelFor(geometry_.n_kv_head * n_packed, rebuild);
}

void Attention::DecodeRun(const Head& head, std::size_t begin, std::size_t n_blocks, bool packed,
                          Worker& worker, const MergeArgs& result) {
  const std::size_t rows = geometry_.heads_per_kv;
  const std::size_t stride = n_blocks * kBlockTokens;
  std::array<const std::byte*, kRunBlocks> keys, values;
  const bool rebuilt = packed && head.method->dequantize;
  const std::uint64_t rebuilt_bytes = head.method->exact_key.geometry.bytes;
  for (std::size_t i = 0; i < n_blocks; ++i) {
    keys[i] = rebuilt ? rebuilt_.data() + (head.kv_head * n_rebuilt_ + begin + i) * rebuilt_bytes
                      : head.data(begin + i, Side::kKey, packed);
    values[i] = head.data(begin + i, Side::kValue, packed);
  }
  const bool transformed = packed && !rebuilt && head.transform() != nullptr;
  if (transformed) {
    head.transform()->BlockBias(head.version(begin), worker.query.data(), rows, begin, n_blocks,
                                worker.bias.data());
  }
  const SideMethod& key = head.side(Side::kKey, packed && !rebuilt);
  const float* query = transformed ? worker.transformed.data() : worker.query.data();
  const bool prepared = packed && !rebuilt && key.codec->query_bytes != nullptr;
  float* scores = worker.scores.data();
  KernelSetOf(*key.codec, isa_)
      .score({.config = key.config.get(),
              .head_dim = geometry_.head_dim,
              .blocks = keys.data(),
              .n_blocks = n_blocks,
              .query = prepared ? worker.prepared.data() : reinterpret_cast<const std::byte*>(query),
              .n_query = rows,
              .scores = scores,
              .scores_stride = stride});
  // Tokens after the query (the rest of the open block), and sinks, which are read from exact rows.
  const std::size_t n_visible =
      std::min(head.last_position + 1 - begin * kBlockTokens, n_blocks * kBlockTokens);
  const std::size_t n_hidden = packed && begin == 0 && head.has_sinks() ? head.method->sink : 0;
  for (std::size_t r = 0; r < rows; ++r) {
    std::fill(scores + r * stride + n_visible, scores + (r + 1) * stride, -INFINITY);
    std::fill_n(scores + r * stride, n_hidden, -INFINITY);
  }
  kernels_->softmax({.scores = scores,
                     .stride = stride,
                     .n_rows = rows,
                     .n_blocks = n_blocks,
                     .max = result.max,
                     .sum = result.sum,
                     .rescale = worker.rescale.data(),
                     .rescale_stride = n_blocks,
                     .bias = transformed ? worker.bias.data() : nullptr});
  const SideMethod& value = head.side(Side::kValue, packed);
  KernelSetOf(*value.codec, isa_)
      .accumulate({.config = value.config.get(),
                   .head_dim = geometry_.head_dim,
                   .blocks = values.data(),
                   .n_blocks = n_blocks,
                   .weights = scores,
                   .weights_stride = stride,
                   .rescale = worker.rescale.data(),
                   .rescale_stride = n_blocks,
                   .n_query = rows,
                   .output = result.output});
}

void Attention::DecodeSinks(const Head& head, Worker& worker, const MergeArgs& result) {
  const std::size_t rows = geometry_.heads_per_kv;
  const std::size_t head_dim = geometry_.head_dim;
  std::fill_n(worker.key_tile.data(), worker.key_tile.size(), 0.0f);
  std::fill_n(worker.value_tile.data(), worker.value_tile.size(), 0.0f);
  ExpandSinks(head, worker.key_tile.data(), worker.value_tile.data());
  float* scores = worker.scores.data();
  kernels_->gemm_tile({.a = worker.query.data(),
                       .a_stride = head_dim,
                       .b = worker.key_tile.data(),
                       .b_stride = kBlockTokens,
                       .c = scores,
                       .c_stride = kBlockTokens,
                       .n_rows = rows,
                       .k = head_dim,
                       .n = kBlockTokens,
                       .c_scale = nullptr,
                       .c_scale_stride = 0});
  for (std::size_t r = 0; r < rows; ++r) {
    float* row = scores + r * kBlockTokens;
    std::fill(row + head.method->sink, row + kBlockTokens, -INFINITY);
  }
  kernels_->softmax({.scores = scores,
                     .stride = kBlockTokens,
                     .n_rows = rows,
                     .n_blocks = 1,
                     .max = result.max,
                     .sum = result.sum,
                     .rescale = worker.rescale.data(),
                     .rescale_stride = 1});
  kernels_->gemm_tile({.a = scores,
                       .a_stride = kBlockTokens,
                       .b = worker.value_tile.data(),
                       .b_stride = head_dim,
                       .c = result.output,
                       .c_stride = head_dim,
                       .n_rows = rows,
                       .k = kBlockTokens,
                       .n = head_dim,
                       .c_scale = worker.rescale.data(),
                       .c_scale_stride = 1});
}

void Attention::MergeDecode(const AttendArgs& args, std::size_t kv_head, std::size_t n_splits) {
  const std::size_t rows = geometry_.heads_per_kv;
  Worker& worker = workers_[0];
  MergeArgs merge = {};
  merge.output = args.output + kv_head * rows * geometry_.head_dim;
  merge.max = worker.total_max.data();
  merge.sum = worker.total_sum.data();
  merge.n_rows = rows;
  merge.head_dim = geometry_.head_dim;
  ResetState(merge);
  for (std::size_t split = 0; split < n_splits; ++split) {
    const MergeArgs part = SplitResult(kv_head, split);
    merge.part_output = part.output;
    merge.part_max = part.max;
    merge.part_sum = part.sum;
    kernels_->merge(merge);
  }
  kernels_->normalize(merge.output, merge.sum, rows, geometry_.head_dim);
}

}  // namespace kvant

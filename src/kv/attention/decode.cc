// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The decode path of attention: one query token, straight from the blocks (attention.h).
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "kv/attention/attention.h"
#include "kv/attention/attention_head.h"

namespace kvant {
namespace {

// A run and the next one, which is brought into the cache meanwhile, should fit the first two
// levels.
constexpr std::uint64_t kRunBytes = 72 << 10;

// What the decode path reads of a packed block: rebuilt keys where they are rebuilt.
std::uint64_t PackedReadBytes(const LayerMethod& method) {
  return method.dequantize ? method.exact_key.geometry.bytes + method.value.geometry.bytes
                           : method.packed_block_bytes();
}

// Blocks of that size in a run: few long streams for large blocks, enough of them for small ones.
// One block alone would be one stream.
std::size_t RunBlocks(std::uint64_t block_bytes) {
  std::size_t n = kRunBlocks;
  while (n > 2 && n * block_bytes > kRunBytes) n /= 2;
  return n;
}

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
  const Splits splits(args.first_position, args.window);
  if (args.mass != nullptr) StartDecodeMass(splits);
  if (args.cache->method().layer(args.layer).dequantize) RebuildKeys(args, threads);
  for (std::size_t kv_head = 0; kv_head < geometry_.n_kv_head; ++kv_head) {
    PrepareHead(Head(args, kv_head, layers_[args.layer]));
  }
  const std::size_t n_ranges = threads.n_threads();
  sweep_.Start(splits.n * geometry_.n_kv_head, n_ranges);
  threads.ParallelFor(n_ranges, [&](std::size_t range, std::size_t thread) {
    while (const std::optional<std::size_t> item = sweep_.Take(range)) {
      const std::size_t kv_head = *item / splits.n;
      Split split = {.blocks = splits[*item % splits.n]};
      if (const std::optional<std::size_t> next = sweep_.Peek(range)) {
        split.next_kv_head = *next / splits.n;
        split.next = splits[*next % splits.n];
      }
      DecodeSplit(Head(args, kv_head, layers_[args.layer]), split, workers_[thread],
                  SplitResult(kv_head, *item % splits.n));
    }
  });
  for (std::size_t kv_head = 0; kv_head < geometry_.n_kv_head; ++kv_head) {
    MergeDecode(args, kv_head, splits.n);
  }
  if (args.mass != nullptr) AddDecodeMass(args, splits, threads);
}

void Attention::PrepareForms(const Head& head, std::size_t block, const float* scaled,
                             QueryForms& forms) const {
  const std::size_t rows = geometry_.heads_per_kv;
  const float* query = scaled;
  if (head.transform() != nullptr) {
    head.transform()->TransformQueries(head.version(block), query, rows, forms.transformed.data());
    head.transform()->Products(head.version(block), query, rows, forms.products.data());
    query = forms.transformed.data();
  }
  const SideMethod& key = head.method->key;
  if (key.codec->query_bytes == nullptr) return;
  head.kernels->key->prepare_query({.config = key.config.get(),
                                    .head_dim = geometry_.head_dim,
                                    .query = query,
                                    .n_query = rows,
                                    .prepared = forms.prepared.data()});
}

// Once for all splits.
void Attention::PrepareHead(const Head& head) {
  QueryForms& forms = forms_[head.kv_head];
  ScaleQuery(head, 0, forms.scaled.data());
  if (head.PackedBlocks(head.last_position) > 0 && !head.method->dequantize) {
    PrepareForms(head, 0, forms.scaled.data(), forms);
  }
}

// Packed blocks are a prefix, so a split reads packed blocks, then the sinks that stand for masked
// tokens of block 0, then exact blocks. What the value codec must undo on the output is undone
// between.
void Attention::DecodeSplit(const Head& head, const Split& split, Worker& worker,
                            const MergeArgs& result) {
  ResetState(result);
  const auto [begin, end] = split.blocks;
  const std::size_t n_packed = std::clamp(head.PackedBlocks(head.last_position), begin, end);
  if (n_packed > begin) {
    DecodePacked(head, split, n_packed, worker, result);
    const SideMethod& value = head.method->value;
    const auto finish = head.kernels->value->finish_output;
    for (std::size_t r = 0; finish != nullptr && r < result.n_rows; ++r) {
      finish(*value.config, result.head_dim, result.output + r * result.head_dim);
    }
    if (begin == 0 && head.reads_sinks()) DecodeSinks(head, worker, result);
  }
  Run run = {.forms = &forms_[head.kv_head]};
  for (run.begin = n_packed; run.begin < end; run.begin = run.end) {
    run.end = std::min(run.begin + RunBlocks(head.method->exact_block_bytes()), end);
    DecodeRun(head, split, run, worker, result);
  }
}

// Stretches of blocks share one version of the key transform and one computation of the biases;
// runs are parts of them.
void Attention::DecodePacked(const Head& head, const Split& split, std::size_t n_packed,
                             Worker& worker, const MergeArgs& result) {
  const KeyTransform* transform = head.method->dequantize ? nullptr : head.transform();
  const auto version = [&](std::size_t block) {
    return transform == nullptr ? 0 : transform->VersionOf(block);
  };
  const QueryForms& first = forms_[head.kv_head];
  const std::size_t run_blocks = RunBlocks(PackedReadBytes(*head.method));
  std::size_t stretch_end = 0;
  for (std::size_t stretch = split.blocks.begin; stretch < n_packed; stretch = stretch_end) {
    stretch_end = std::min(n_packed, stretch + kBiasBlocks);
    while (version(stretch_end - 1) != version(stretch)) --stretch_end;
    Run run = {.packed = true, .forms = &first, .bias_stride = stretch_end - stretch};
    if (version(stretch) != 0) {
      run.forms = &worker.forms;
      if (stretch == split.blocks.begin || version(stretch) != version(stretch - 1)) {
        PrepareForms(head, stretch, first.scaled.data(), worker.forms);
      }
    }
    if (transform != nullptr) {
      kernels_->block_bias({.phases = transform->phases(),
                            .products = run.forms->products.data(),
                            .product_floats = transform->product_floats(),
                            .n_rows = geometry_.heads_per_kv,
                            .first = stretch,
                            .n_blocks = run.bias_stride,
                            .bias = worker.bias.data()});
    }
    for (run.begin = stretch; run.begin < stretch_end; run.begin = run.end) {
      run.end = std::min(run.begin + run_blocks, stretch_end);
      if (transform != nullptr) run.bias = worker.bias.data() + (run.begin - stretch);
      DecodeRun(head, split, run, worker, result);
    }
  }
}

// All packed keys of the layer that are read (the whole history where there is no window) back to
// 16-bit rows, as the published system did at every step.
void Attention::RebuildKeys(const AttendArgs& args, ThreadPool& threads) {
  const LayerMethod& method = args.cache->method().layer(args.layer);
  const std::size_t n_packed =
      std::min(method.PackedBlocks(args.first_position), BlocksFor(args.first_position + 1));
  const std::size_t first = FirstSeen(args.first_position, args.window) / kBlockTokens;
  if (n_packed <= first) return;
  const std::size_t n = n_packed - first;
  const std::uint64_t bytes = method.exact_key.geometry.bytes;
  if (n_packed > n_rebuilt_) {
    rebuilt_ = Buffer<std::byte>(geometry_.n_kv_head * n_packed * bytes, MemoryTag::kScratch);
    n_rebuilt_ = n_packed;
  }
  const auto rebuild = [&](std::size_t item, std::size_t thread) {
    const std::size_t kv_head = item / n;
    const std::size_t block = first + item % n;
    const Head head(args, kv_head, layers_[args.layer]);
    float* tile = workers_[thread].key_tile.data();
    DecodeSide(head, Side::kKey, block, true, tile);
    head.kernels->exact_key->store_key_tile(geometry_.head_dim, tile, RebuiltKeys(head, block));
  };
  threads.ParallelFor(geometry_.n_kv_head * n, rebuild);
}

std::byte* Attention::RebuiltKeys(const Head& head, std::size_t block) {
  const std::uint64_t bytes = head.method->exact_key.geometry.bytes;
  return rebuilt_.data() + (head.kv_head * n_rebuilt_ + block) * bytes;
}

// One run, or what is left of the blocks that are read in the same form.
Attention::Upcoming Attention::FirstRun(const Head& head, Blocks blocks) {
  const std::size_t n_packed = head.PackedBlocks(head.last_position);
  const bool packed = blocks.begin < n_packed;
  const LayerMethod& method = *head.method;
  const bool rebuilt = packed && method.dequantize;
  const std::uint64_t bytes = packed ? PackedReadBytes(method) : method.exact_block_bytes();
  const std::size_t form_end = packed ? std::min(n_packed, blocks.end) : blocks.end;
  const std::size_t end = std::min(blocks.begin + RunBlocks(bytes), form_end);
  Upcoming upcoming;
  upcoming.stream_bytes = rebuilt ? method.exact_key.geometry.bytes : bytes;
  const bool values_too = rebuilt && method.value.geometry.bytes == upcoming.stream_bytes;
  for (std::size_t b = blocks.begin; b < end; ++b) {
    upcoming.streams[upcoming.n_streams++] =
        rebuilt ? RebuiltKeys(head, b) : head.data(b, Side::kKey, packed);
    if (values_too) upcoming.streams[upcoming.n_streams++] = head.data(b, Side::kValue, true);
  }
  return upcoming;
}

Attention::Upcoming Attention::BlocksAfter(const Head& head, const Split& split,
                                           std::size_t block) {
  if (block < split.blocks.end) return FirstRun(head, {block, split.blocks.end});
  if (split.next.begin == split.next.end) return {};
  return FirstRun(Head(*head.args, split.next_kv_head, *head.kernels), split.next);
}

void Attention::HideTokens(const Head& head, const Run& run, float* scores,
                           std::size_t stride) const {
  const std::size_t begin = run.begin * kBlockTokens;
  const std::size_t n = (run.end - run.begin) * kBlockTokens;
  // The rest of the open block.
  const std::size_t n_visible = std::min(head.last_position + 1 - begin, n);
  // Tokens before the window, and sinks, which are read from exact rows.
  std::size_t n_hidden = run.packed && begin == 0 && head.has_sinks() ? head.method->sink : 0;
  const std::size_t first_seen = head.FirstSeen(head.last_position);
  if (first_seen > begin) n_hidden = std::max(n_hidden, first_seen - begin);
  for (std::size_t r = 0; r < geometry_.heads_per_kv; ++r) {
    float* row = scores + r * stride;
    std::fill(row + n_visible, row + n, -INFINITY);
    std::fill_n(row, n_hidden, -INFINITY);
  }
}

void Attention::ScoreRun(const Head& head, const Run& run, const ScoreRows& rows,
                         ReadAhead* ahead) {
  const std::size_t n_blocks = run.end - run.begin;
  const bool rebuilt = run.packed && head.method->dequantize;
  const bool from_codes = run.packed && !rebuilt;
  std::array<const std::byte*, kRunBlocks> keys;
  for (std::size_t i = 0; i < n_blocks; ++i) {
    keys[i] = rebuilt ? RebuiltKeys(head, run.begin + i)
                      : head.data(run.begin + i, Side::kKey, run.packed);
  }
  const SideMethod& key = head.side(Side::kKey, from_codes);
  const bool transformed = from_codes && head.transform() != nullptr;
  const float* query =
      transformed ? run.forms->transformed.data() : forms_[head.kv_head].scaled.data();
  const bool prepared = from_codes && key.codec->query_bytes != nullptr;
  head.kernels->side(Side::kKey, from_codes)
      .score({.config = key.config.get(),
              .head_dim = geometry_.head_dim,
              .blocks = keys.data(),
              .n_blocks = n_blocks,
              .query =
                  prepared ? run.forms->prepared.data() : reinterpret_cast<const std::byte*>(query),
              .n_query = geometry_.heads_per_kv,
              .scores = rows.scores,
              .scores_stride = rows.stride,
              .ahead = ahead});
  HideTokens(head, run, rows.scores, rows.stride);
}

void Attention::DecodeRun(const Head& head, const Split& split, const Run& run, Worker& worker,
                          const MergeArgs& result) {
  const std::size_t n_rows = geometry_.heads_per_kv;
  const std::size_t n_blocks = run.end - run.begin;
  const Upcoming upcoming = BlocksAfter(head, split, run.end);
  ReadAhead ahead(upcoming.streams.data(), upcoming.n_streams, upcoming.stream_bytes);
  ScoreRows rows = {.scores = worker.scores.data(), .stride = n_blocks * kBlockTokens};
  if (head.args->mass != nullptr) rows = MassRows(head.kv_head, run.begin - mass_.first_block);
  ScoreRun(head, run, rows, &ahead);
  kernels_->softmax({.scores = rows.scores,
                     .stride = rows.stride,
                     .n_rows = n_rows,
                     .n_blocks = n_blocks,
                     .max = result.max,
                     .sum = result.sum,
                     .rescale = worker.rescale.data(),
                     .rescale_stride = n_blocks,
                     .bias = run.bias,
                     .bias_stride = run.bias_stride,
                     .block_max = rows.block_max,
                     .block_max_stride = rows.block_max_stride,
                     .ahead = &ahead});
  std::array<const std::byte*, kRunBlocks> values;
  for (std::size_t i = 0; i < n_blocks; ++i) {
    values[i] = head.data(run.begin + i, Side::kValue, run.packed);
  }
  head.kernels->side(Side::kValue, run.packed)
      .accumulate({.config = head.side(Side::kValue, run.packed).config.get(),
                   .head_dim = geometry_.head_dim,
                   .blocks = values.data(),
                   .n_blocks = n_blocks,
                   .weights = rows.scores,
                   .weights_stride = rows.stride,
                   .rescale = worker.rescale.data(),
                   .rescale_stride = n_blocks,
                   .n_query = n_rows,
                   .output = result.output,
                   .ahead = &ahead});
}

void Attention::DecodeSinks(const Head& head, Worker& worker, const MergeArgs& result) {
  const std::size_t first = head.FirstSeen(head.last_position);
  const std::size_t skipped = first * geometry_.head_dim;
  ScoreRows rows = {};
  if (head.args->mass != nullptr) rows = MassRows(head.kv_head, mass_.n_slots - 1);
  kernels_->attend_rows({.query = forms_[head.kv_head].scaled.data(),
                         .n_query = geometry_.heads_per_kv,
                         .head_dim = geometry_.head_dim,
                         .keys = SinkRows(head, Side::kKey, worker.key_tile.data()) + skipped,
                         .values = SinkRows(head, Side::kValue, worker.value_tile.data()) + skipped,
                         .n_rows = head.method->sink - first,
                         .max = result.max,
                         .sum = result.sum,
                         .output = result.output,
                         .weights = rows.scores,
                         .weights_stride = rows.stride});
  for (std::size_t r = 0; rows.scores != nullptr && r < result.n_rows; ++r) {
    rows.block_max[r * rows.block_max_stride] = result.max[r];
  }
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
  if (args.mass != nullptr) {
    const ScoreRows mass = MassRows(kv_head, 0);
    for (std::size_t r = 0; r < rows; ++r) {
      kernels_->mass_factors(mass.block_max + r * mass.block_max_stride, mass_.n_slots,
                             merge.max[r], merge.sum[r]);
    }
  }
  kernels_->normalize(merge.output, merge.sum, rows, geometry_.head_dim);
}

}  // namespace kvant

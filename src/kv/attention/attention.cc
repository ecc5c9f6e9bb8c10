// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/attention/attention.h"

#include <algorithm>
#include <numbers>

#include "base/error.h"
#include "kv/attention/attention_head.h"

namespace kvant {

std::size_t SplitBlocks(std::size_t n_blocks) {
  const std::size_t least = (n_blocks + kMaxSplits - 1) / kMaxSplits;
  return least <= 4 ? 4 : (least + 7) / 8 * 8;
}

Attention::Attention(const Method& method, Isa isa, std::size_t n_threads)
    : geometry_(method.geometry()), isa_(isa), kernels_(&AttentionKernelsOf(isa)), sweep_(n_threads) {
  const std::size_t heads = geometry_.heads_per_kv;
  const std::size_t rows = kBlockTokens * heads;
  const std::size_t head_dim = geometry_.head_dim;
  for (std::size_t i = 0; i < geometry_.n_layer; ++i) {
    const SideMethod& key = method.layer(i).key;
    layers_.push_back({.key = &KernelSetOf(*key.codec, isa),
                       .value = &KernelSetOf(*method.layer(i).value.codec, isa),
                       .exact_key = &KernelSetOf(*method.layer(i).exact_key.codec, isa),
                       .exact_value = &KernelSetOf(*method.layer(i).exact_value.codec, isa)});
  }
  for (std::size_t i = 0; i < geometry_.n_kv_head; ++i) forms_.push_back(MakeForms(method));
  constexpr MemoryTag kTag = MemoryTag::kScratch;
  for (std::size_t i = 0; i < n_threads; ++i) {
    Worker worker;
    worker.query = Buffer<float>(rows * head_dim, kTag);
    worker.scores = Buffer<float>(rows * kBlockTokens, kTag);
    worker.rescale = Buffer<float>(rows, kTag);
    for (Buffer<float>* output : {&worker.part, &worker.total}) {
      *output = Buffer<float>(rows * head_dim, kTag);
    }
    for (Buffer<float>* scalar :
         {&worker.part_max, &worker.part_sum, &worker.total_max, &worker.total_sum}) {
      *scalar = Buffer<float>(rows, kTag);
    }
    worker.key_tile = Buffer<float>(head_dim * kBlockTokens, kTag);
    worker.value_tile = Buffer<float>(kBlockTokens * head_dim, kTag);
    worker.forms = MakeForms(method);
    if (method.spec().key_transform.active())
      worker.bias = Buffer<float>(heads * kBiasBlocks, kTag);
    workers_.push_back(std::move(worker));
  }
  const std::size_t n_partial = geometry_.n_kv_head * kMaxSplits * heads;
  split_output_ = Buffer<float>(n_partial * head_dim, kTag);
  split_max_ = Buffer<float>(n_partial, kTag);
  split_sum_ = Buffer<float>(n_partial, kTag);
}

Attention::QueryForms Attention::MakeForms(const Method& method) const {
  const std::size_t heads = geometry_.heads_per_kv;
  std::size_t query_bytes = 0, product_floats = 0;
  for (std::size_t i = 0; i < geometry_.n_layer; ++i) {
    const LayerMethod& layer = method.layer(i);
    if (layer.key.codec->query_bytes != nullptr) {
      query_bytes = std::max(query_bytes,
                             layer.key.codec->query_bytes(geometry_.head_dim, *layer.key.config));
    }
    if (layer.transform != nullptr)
      product_floats = std::max(product_floats, layer.transform->product_floats());
  }
  constexpr MemoryTag kTag = MemoryTag::kScratch;
  QueryForms forms;
  forms.scaled = Buffer<float>(heads * geometry_.head_dim, kTag);
  forms.prepared = Buffer<std::byte>(heads * query_bytes, kTag);
  if (product_floats > 0) {
    forms.transformed = Buffer<float>(heads * geometry_.head_dim, kTag);
    forms.products = Buffer<float>(heads * product_floats, kTag);
  }
  return forms;
}

void Attention::Attend(const AttendArgs& args, ThreadPool& threads) {
  KVANT_CHECK(threads.n_threads() <= workers_.size());
  if (args.n_query == 1 && !args.exact) return Decode(args, threads);
  // Tiles end where blocks end, so that the reading rule and the splits are the same for a whole
  // tile.
  const std::size_t first_tile = args.first_position / kBlockTokens;
  const std::size_t last_tile = (args.first_position + args.n_query - 1) / kBlockTokens;
  const std::size_t n_tiles = last_tile - first_tile + 1;
  const auto attend = [&](std::size_t item, std::size_t thread) {
    // Late tiles see the longest history: they go first, so that no thread ends alone with one.
    const std::size_t tile = last_tile - item / geometry_.n_kv_head;
    const Head head(args, item % geometry_.n_kv_head, layers_[args.layer]);
    AttendTile(head, TileAt(args, tile), workers_[thread]);
  };
  if (args.mass != nullptr) StartTileMass(args);
  threads.ParallelFor(n_tiles * geometry_.n_kv_head, attend);
  if (args.mass != nullptr) AddTileMass(args, threads);
}

// Scores are kept as base-2 logits, so the softmax needs 2^x alone.
void Attention::ScaleQuery(const Head& head, std::size_t token, float* rows) const {
  const std::size_t n = geometry_.heads_per_kv * geometry_.head_dim;
  const float scale = head.args->softmax_scale * std::numbers::log2e_v<float>;
  const float* query = head.args->query + (token * geometry_.n_kv_head + head.kv_head) * n;
  for (std::size_t i = 0; i < n; ++i) rows[i] = query[i] * scale;
}

const float* Attention::SinkRows(const Head& head, Side side, float* rows) const {
  const std::size_t sink = head.method->sink;
  const std::uint64_t key_bytes = sink * head.method->exact_key.geometry.bytes_per_token;
  const std::byte* numbers = head.table->sink_rows.data() + (side == Side::kKey ? 0 : key_bytes);
  head.kernels->side(side, false).widen(numbers, sink * geometry_.head_dim, rows);
  return rows;
}

std::string Attention::PathName(const Method& method) const {
  const LayerMethod& layer = method.layer(0);
  const std::string codecs =
      layer.key.codec == layer.value.codec
          ? std::string(layer.key.codec->name)
          : fmt::format("{}+{}", layer.key.codec->name, layer.value.codec->name);
  return fmt::format("attend{}/{}/{}", layer.dequantize ? "-dequantized" : "", codecs,
                     IsaName(isa_));
}

std::uint64_t Attention::scratch_bytes() const {
  std::uint64_t bytes = split_output_.bytes() + split_max_.bytes() + split_sum_.bytes();
  for (const Worker& w : workers_) {
    for (const Buffer<float>* buffer :
         {&w.query, &w.scores, &w.rescale, &w.part, &w.part_max, &w.part_sum, &w.total,
          &w.total_max, &w.total_sum, &w.key_tile, &w.value_tile}) {
      bytes += buffer->bytes();
    }
    bytes += w.forms.bytes() + w.bias.bytes();
  }
  for (const QueryForms& forms : forms_) bytes += forms.bytes();
  bytes += rebuilt_.bytes() + mass_.weights.bytes() + mass_.max.bytes() + mass_.inverse_sum.bytes();
  return bytes;
}

}  // namespace kvant

// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/micro/attend_rig.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/rng.h"

namespace kvant::micro {
namespace {

constexpr std::size_t kStep = 512;

std::vector<float> NormalNumbers(std::size_t n, double sigma, std::uint64_t seed) {
  SplitMix64 rng(seed);
  std::vector<float> numbers(n);
  for (float& x : numbers) x = static_cast<float>(sigma * rng.Normal());
  return numbers;
}

double LargestNorm(const std::vector<float>& numbers, std::size_t head_dim) {
  double largest = 0;
  for (std::size_t row = 0; row < numbers.size(); row += head_dim) {
    double square = 0;
    for (std::size_t d = 0; d < head_dim; ++d) {
      square += static_cast<double>(numbers[row + d]) * static_cast<double>(numbers[row + d]);
    }
    largest = std::max(largest, square);
  }
  return std::sqrt(largest);
}

}  // namespace

std::uint64_t BytesRead(const Method& method, std::size_t context) {
  std::uint64_t bytes = 0;
  const CacheGeometry& g = method.geometry();
  for (std::size_t i = 0; i < g.n_layer; ++i) {
    const LayerMethod& layer = method.layer(i);
    const std::size_t n_tokens = context + 1;
    const std::size_t n_packed = std::min(layer.PackedBlocks(context), BlocksFor(n_tokens));
    const std::size_t n_exact = n_tokens - std::min(n_tokens, n_packed * kBlockTokens);
    bytes += g.n_kv_head * (n_packed * layer.packed_block_bytes() +
                            n_exact * layer.exact_block_bytes() / kBlockTokens +
                            (n_packed > 0 ? layer.sink_bytes() : 0));
  }
  return bytes;
}

AttendRig::AttendRig(std::shared_ptr<const Method> method, std::size_t context)
    : method_(std::move(method)),
      context_(context),
      pool_(0),
      cache_(method_, &pool_, SupportedIsas().back()) {
  const CacheGeometry& g = method_->geometry();
  rows_ = NormalNumbers(2 * kStep * g.n_kv_head * g.head_dim, 1.0, 71);
  const std::size_t n_queries = std::max(kStep, g.n_layer);
  queries_ = NormalNumbers(n_queries * n_q_head() * g.head_dim, 1.5, 72);
  output_.resize(n_q_head() * g.head_dim);
  while (cache_.length() < context) {
    const std::size_t n = std::min(kStep, context - cache_.length());
    Append(n);
    cache_.Commit(cache_.length() + n);
  }
  Append(1);
}

std::size_t AttendRig::n_q_head() const {
  return method_->geometry().n_kv_head * method_->geometry().heads_per_kv;
}

float AttendRig::softmax_scale() const {
  return 1.0f / std::sqrt(static_cast<float>(method_->geometry().head_dim));
}

// Each step of each layer takes other rows of the same numbers; keys and values never the same.
void AttendRig::Append(std::size_t n) {
  const CacheGeometry& g = method_->geometry();
  for (std::size_t layer = 0; layer < g.n_layer; ++layer) {
    const std::size_t at = cache_.length() + 37 * layer;
    const std::size_t row = g.n_kv_head * g.head_dim;
    cache_.Append(layer, n, rows_.data() + at % kStep * row,
                  rows_.data() + (at + kStep / 2) % kStep * row, queries_.data());
    cache_.FinishLayer(layer, cache_.length() + n);
  }
}

void AttendRig::AttendLayer(Attention& attention, std::size_t layer, float* output,
                            ThreadPool& threads) {
  attention.Attend({.cache = &cache_,
                    .layer = layer,
                    .first_position = context_,
                    .n_query = 1,
                    .query = queries_.data() + layer * output_.size(),
                    .softmax_scale = softmax_scale(),
                    .output = output},
                   threads);
}

void AttendRig::Step(Attention& attention, ThreadPool& threads) {
  for (std::size_t layer = 0; layer < method_->geometry().n_layer; ++layer) {
    AttendLayer(attention, layer, output_.data(), threads);
  }
}

double AttendRig::Tolerance(Isa isa) const {
  const std::size_t head_dim = method_->geometry().head_dim;
  const double logit = LargestNorm(queries_, head_dim) * LargestNorm(rows_, head_dim) *
                       static_cast<double>(softmax_scale());
  const LayerMethod& layer = method_->layer(0);
  double tolerance = 0;
  for (const SideMethod* side :
       {&layer.key, &layer.value, &layer.exact_key, &layer.exact_value}) {
    const Exactness& e = KernelSetOf(*side->codec, isa).exactness;
    if (e.kind == Exactness::Kind::kBitExact) continue;
    const bool key = side == &layer.key || side == &layer.exact_key;
    const double relative = e.kind == Exactness::Kind::kUlp ? e.bound * 0x1p-24 : e.bound;
    tolerance += relative * (key ? 2 * logit : 1);
  }
  return tolerance;
}

std::string AttendRig::Compare(const std::vector<float>& got, double tolerance) const {
  const std::size_t head_dim = method_->geometry().head_dim;
  for (std::size_t head = 0; head < n_q_head(); ++head) {
    double error = 0, norm = 0;
    for (std::size_t d = 0; d < head_dim; ++d) {
      const double want = static_cast<double>(reference_[head * head_dim + d]);
      const double difference = static_cast<double>(got[head * head_dim + d]) - want;
      error += difference * difference;
      norm += want * want;
    }
    if (std::sqrt(error) <= tolerance * std::sqrt(norm)) continue;
    return fmt::format("the output of query head {} is off by {:.3g} of its norm; {:.3g} is allowed", head,
                       std::sqrt(error / norm), tolerance);
  }
  return {};
}

std::string AttendRig::Check(Isa isa, ThreadPool& threads) {
  if (reference_.empty()) {
    Attention scalar(*method_, Isa::kScalar, threads.n_threads());
    reference_.resize(output_.size());
    AttendLayer(scalar, 0, reference_.data(), threads);
  }
  Attention attention(*method_, isa, threads.n_threads());
  std::vector<float> got(output_.size());
  AttendLayer(attention, 0, got.data(), threads);
  return Compare(got, Tolerance(isa));
}

}  // namespace kvant::micro

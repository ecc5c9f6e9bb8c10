// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/forward.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace kvant {
namespace {

constexpr MemoryTag kTag = MemoryTag::kScratch;

std::size_t MaxCols(const ModelConfig& config) {
  return std::max({config.n_embd, config.n_ff, config.n_q_head * config.head_dim});
}

// Four partial sums in double: independent of the compiler's vectoriser, and exact enough to
// forget.
double SumOfSquares(const float* x, std::size_t n) {
  double sum[4] = {0, 0, 0, 0};
  for (std::size_t i = 0; i < n; ++i) {
    sum[i % 4] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// row [bias.size()] += bias, where there is one.
void AddBias(const std::vector<float>& bias, float* row) {
  for (std::size_t i = 0; i < bias.size(); ++i) row[i] += bias[i];
}

// y = x / sqrt(mean(x^2) + eps) * weight (Zhang, Sennrich 2019, arXiv 1910.07467); in place where `to` is `from`.
void NormRow(const float* from, const std::vector<float>& weight, double eps, float* to) {
  const std::size_t size = weight.size();
  const double mean = SumOfSquares(from, size) / static_cast<double>(size);
  const float scale = static_cast<float>(1.0 / std::sqrt(mean + eps));
  for (std::size_t i = 0; i < size; ++i) to[i] = from[i] * scale * weight[i];
}

// Pairs of channels x, y become x cos - y sin, x sin + y cos; kStride is from pair to pair.
template <std::size_t kStride>
void TurnPairs(float* x, float* y, const float* cosine, const float* sine, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const float a = x[i * kStride], b = y[i * kStride];
    x[i * kStride] = a * cosine[i] - b * sine[i];
    y[i * kStride] = a * sine[i] + b * cosine[i];
  }
}

}  // namespace

RopeTurns::RopeTurns(const RopeGeometry& rope, double magnitude, std::size_t max_chunk)
    : rope_(&rope),
      magnitude_(magnitude),
      cos_(max_chunk * rope.n_pair(), kTag),
      sin_(max_chunk * rope.n_pair(), kTag) {}

void RopeTurns::Prepare(std::size_t first, std::size_t n) {
  const std::size_t n_pair = rope_->n_pair();
  for (std::size_t token = 0; token < n; ++token) {
    for (std::size_t i = 0; i < n_pair; ++i) {
      const double angle = static_cast<double>(first + token) * rope_->frequency[i];
      cos_[token * n_pair + i] = static_cast<float>(magnitude_ * std::cos(angle));
      sin_[token * n_pair + i] = static_cast<float>(magnitude_ * std::sin(angle));
    }
  }
}

void RopeTurns::Apply(std::size_t token, float* row, std::size_t n_head,
                      std::size_t head_dim) const {
  const std::size_t n_pair = rope_->n_pair();
  const float* cosine = cos_.data() + token * n_pair;
  const float* sine = sin_.data() + token * n_pair;
  for (std::size_t head = 0; head < n_head; ++head, row += head_dim) {
    if (rope_->adjacent_pairs) {
      TurnPairs<2>(row, row + 1, cosine, sine, n_pair);
    } else {
      TurnPairs<1>(row, row + n_pair, cosine, sine, n_pair);
    }
  }
}

ForwardPass::ForwardPass(const Model& model, const Method& method, Isa isa, ThreadPool& threads,
                         std::size_t max_chunk, bool exact, PrefillKind prefill)
    : model_(model),
      threads_(threads),
      attention_(method, isa, threads.n_threads()),
      matmul_(isa, threads.n_threads(), max_chunk, MaxCols(model.config), exact, prefill),
      max_chunk_(max_chunk),
      exact_(exact) {
  const ModelConfig& config = model.config;
  const std::size_t q_row = config.n_q_head * config.head_dim;
  const std::size_t kv_row = config.n_kv_head * config.head_dim;
  x_ = Buffer<float>(max_chunk * config.n_embd, kTag);
  normed_ = Buffer<float>(max_chunk * config.n_embd, kTag);
  query_ = Buffer<float>(max_chunk * q_row, kTag);
  attended_ = Buffer<float>(max_chunk * q_row, kTag);
  keys_ = Buffer<float>(max_chunk * kv_row, kTag);
  values_ = Buffer<float>(max_chunk * kv_row, kTag);
  gated_ = Buffer<float>(max_chunk * config.n_ff, kTag);
  if (config.traits->post_norms) projected_ = Buffer<float>(max_chunk * config.n_embd, kTag);
  turns_ = RopeTurns(model.rope, config.rope_magnitude(), max_chunk);
  if (config.has_local_rope()) local_turns_ = RopeTurns(model.local_rope, 1, max_chunk);
}

void ForwardPass::Run(KvCache& cache, std::span<const TokenId> tokens) {
  KVANT_CHECK(!tokens.empty() && tokens.size() <= max_chunk_);
  for (const TokenId id : tokens) {
    if (id < 0 || static_cast<std::size_t>(id) >= model_.config.n_vocab) {
      Fail(ErrorCode::kInvalidArgument, "token id {} is outside the vocabulary of {} tokens", id,
           model_.config.n_vocab);
    }
  }
  cache.CheckRoom(tokens.size());
  try {
    RunLayers(cache, tokens);
  } catch (...) {
    cache.Rollback();
    throw;
  }
}

void ForwardPass::RunLayers(KvCache& cache, std::span<const TokenId> tokens) {
  Embed(tokens);
  turns_.Prepare(cache.length(), tokens.size());
  if (model_.config.has_local_rope()) local_turns_.Prepare(cache.length(), tokens.size());
  for (std::size_t layer = 0; layer < model_.config.n_layer; ++layer) {
    RunLayer(cache, layer, tokens.size());
  }
  cache.Commit(cache.length() + tokens.size());
}

void ForwardPass::Embed(std::span<const TokenId> tokens) {
  const ModelConfig& config = model_.config;
  const float scale =
      config.traits->scaled_embedding ? std::sqrt(static_cast<float>(config.n_embd)) : 1.0f;
  const auto embed = [&](std::size_t token, std::size_t) {
    float* row = x_.data() + token * config.n_embd;
    model_.embedding.Row(static_cast<std::size_t>(tokens[token]), row);
    for (std::size_t i = 0; i < config.n_embd; ++i) row[i] *= scale;
  };
  threads_.ParallelFor(tokens.size(), embed);
}

void ForwardPass::RmsNorm(const float* x, const std::vector<float>& weight, float* out,
                          std::size_t n) {
  const std::size_t size = weight.size();
  const auto norm = [&](std::size_t row, std::size_t) {
    NormRow(x + row * size, weight, static_cast<double>(model_.config.rms_eps), out + row * size);
  };
  threads_.ParallelFor(n, norm);
}

void ForwardPass::Project(std::size_t layer, std::size_t n) {
  const ModelConfig& config = model_.config;
  const LayerWeights& w = model_.layers[layer];
  const MatrixView<const float> normed(normed_.data(), n, config.n_embd);
  const std::size_t q_row = config.n_q_head * config.head_dim;
  const std::size_t kv_row = config.n_kv_head * config.head_dim;
  const ProductTarget qkv[] = {{&w.wq, {query_.data(), n, q_row}},
                               {&w.wk, {keys_.data(), n, kv_row}},
                               {&w.wv, {values_.data(), n, kv_row}}};
  matmul_.Run(qkv, normed, threads_);
  const bool local = config.has_local_rope() && config.is_local(layer);
  const RopeTurns& turns = local ? local_turns_ : turns_;
  const auto finish = [&](std::size_t token, std::size_t) {
    AddBias(w.v_bias, values_.data() + token * kv_row);
    FinishHeads(query_.data() + token * q_row, config.n_q_head, w.q_bias, w.q_norm, turns, token);
    FinishHeads(keys_.data() + token * kv_row, config.n_kv_head, w.k_bias, w.k_norm, turns, token);
  };
  threads_.ParallelFor(n, finish);
}

void ForwardPass::FinishHeads(float* row, std::size_t n_head, const std::vector<float>& bias,
                              const std::vector<float>& norm, const RopeTurns& turns,
                              std::size_t token) const {
  const ModelConfig& config = model_.config;
  AddBias(bias, row);
  if (config.traits->qk_norm) {
    for (std::size_t head = 0; head < n_head; ++head) {
      float* x = row + head * config.head_dim;
      NormRow(x, norm, static_cast<double>(config.rms_eps), x);
    }
  }
  turns.Apply(token, row, n_head, config.head_dim);
}

void ForwardPass::AddProduct(const WeightMatrix& w, const std::vector<float>& post_norm,
                             const float* input, std::size_t n) {
  const std::size_t n_embd = model_.config.n_embd;
  const bool direct = post_norm.empty();
  float* output = direct ? x_.data() : projected_.data();
  const ProductTarget target[] = {{&w, {output, n, n_embd}, direct}};
  matmul_.Run(target, {input, n, w.n_cols()}, threads_);
  if (direct) return;
  RmsNorm(output, post_norm, output, n);
  for (std::size_t i = 0; i < n * n_embd; ++i) x_[i] += output[i];
}

void ForwardPass::RunLayer(KvCache& cache, std::size_t layer, std::size_t n) {
  const ModelConfig& config = model_.config;
  const LayerWeights& w = model_.layers[layer];
  RmsNorm(x_.data(), w.attn_norm, normed_.data(), n);
  Project(layer, n);
  cache.Append(layer, n, keys_.data(), values_.data(), query_.data(), &threads_);
  attention_.Attend({.cache = &cache,
                     .layer = layer,
                     .first_position = cache.length(),
                     .n_query = n,
                     .query = query_.data(),
                     .softmax_scale = config.softmax_scale,
                     .output = attended_.data(),
                     .exact = exact_,
                     .window = config.is_local(layer) ? config.window : 0},
                    threads_);
  cache.FinishLayer(layer, cache.length() + n);
  AddProduct(w.wo, w.attn_post_norm, attended_.data(), n);

  RmsNorm(x_.data(), w.ffn_norm, normed_.data(), n);
  const MatrixView<const float> normed(normed_.data(), n, config.n_embd);
  matmul_.RunGated(w.gate, w.up, config.traits->activation, normed, {gated_.data(), n, config.n_ff},
                   threads_);
  AddProduct(w.down, w.ffn_post_norm, gated_.data(), n);
}

void ForwardPass::Logits(std::size_t first, std::size_t n, float* logits) {
  const ModelConfig& config = model_.config;
  RmsNorm(x_.data() + first * config.n_embd, model_.output_norm, normed_.data(), n);
  const ProductTarget head[] = {{&model_.output_head(), {logits, n, config.n_vocab}}};
  matmul_.Run(head, {normed_.data(), n, config.n_embd}, threads_);
}

}  // namespace kvant

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

// Four partial sums in double: independent of the compiler's vectoriser, and exact enough to forget.
double SumOfSquares(const float* x, std::size_t n) {
  double sum[4] = {0, 0, 0, 0};
  for (std::size_t i = 0; i < n; ++i) {
    sum[i % 4] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

}  // namespace

ForwardPass::ForwardPass(const Model& model, const Method& method, Isa isa, ThreadPool& threads,
                         std::size_t max_chunk, bool exact)
    : model_(model),
      threads_(threads),
      attention_(method, isa, threads.n_threads()),
      matmul_(isa, threads.n_threads(), max_chunk, MaxCols(model.config)),
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
  cos_ = Buffer<float>(max_chunk * config.n_rot / 2, kTag);
  sin_ = Buffer<float>(max_chunk * config.n_rot / 2, kTag);
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
  PrepareRope(cache.length(), tokens.size());
  for (std::size_t layer = 0; layer < model_.config.n_layer; ++layer) {
    RunLayer(cache, layer, tokens.size());
  }
  cache.Commit(cache.length() + tokens.size());
}

void ForwardPass::Embed(std::span<const TokenId> tokens) {
  const auto embed = [&](std::size_t token, std::size_t) {
    model_.embedding.Row(static_cast<std::size_t>(tokens[token]),
                         x_.data() + token * model_.config.n_embd);
  };
  threads_.ParallelFor(tokens.size(), embed);
}

void ForwardPass::PrepareRope(std::size_t first_position, std::size_t n) {
  const std::size_t n_pair = model_.rope.frequency.size();
  for (std::size_t token = 0; token < n; ++token) {
    for (std::size_t i = 0; i < n_pair; ++i) {
      const double angle = static_cast<double>(first_position + token) * model_.rope.frequency[i];
      cos_[token * n_pair + i] = static_cast<float>(std::cos(angle));
      sin_[token * n_pair + i] = static_cast<float>(std::sin(angle));
    }
  }
}

// GGUF's llama weights are permuted so that the turned pairs are neighbours (2i, 2i + 1).
void ForwardPass::ApplyRope(float* rows, std::size_t n, std::size_t n_head) {
  const std::size_t n_pair = model_.rope.frequency.size();
  const std::size_t head_dim = model_.config.head_dim;
  for (std::size_t token = 0; token < n; ++token) {
    const float* cosine = cos_.data() + token * n_pair;
    const float* sine = sin_.data() + token * n_pair;
    for (std::size_t head = 0; head < n_head; ++head) {
      float* row = rows + (token * n_head + head) * head_dim;
      for (std::size_t i = 0; i < n_pair; ++i) {
        const float a = row[2 * i];
        const float b = row[2 * i + 1];
        row[2 * i] = a * cosine[i] - b * sine[i];
        row[2 * i + 1] = a * sine[i] + b * cosine[i];
      }
    }
  }
}

// y = x / sqrt(mean(x^2) + eps) * weight (Zhang, Sennrich 2019, arXiv 1910.07467).
void ForwardPass::RmsNorm(const float* x, const std::vector<float>& weight, float* out,
                          std::size_t n) {
  const std::size_t n_embd = model_.config.n_embd;
  const auto norm = [&](std::size_t token, std::size_t) {
    const float* from = x + token * n_embd;
    const double mean = SumOfSquares(from, n_embd) / static_cast<double>(n_embd);
    const float scale = static_cast<float>(1.0 / std::sqrt(mean + model_.config.rms_eps));
    float* to = out + token * n_embd;
    for (std::size_t i = 0; i < n_embd; ++i) to[i] = from[i] * scale * weight[i];
  };
  threads_.ParallelFor(n, norm);
}

void ForwardPass::RunLayer(KvCache& cache, std::size_t layer, std::size_t n) {
  const ModelConfig& config = model_.config;
  const LayerWeights& w = model_.layers[layer];
  const std::size_t q_row = config.n_q_head * config.head_dim;
  const std::size_t kv_row = config.n_kv_head * config.head_dim;

  RmsNorm(x_.data(), w.attn_norm, normed_.data(), n);
  const MatrixView<const float> normed(normed_.data(), n, config.n_embd);
  const ProductTarget qkv[] = {{&w.wq, {query_.data(), n, q_row}},
                               {&w.wk, {keys_.data(), n, kv_row}},
                               {&w.wv, {values_.data(), n, kv_row}}};
  matmul_.Run(qkv, normed, threads_);
  ApplyRope(query_.data(), n, config.n_q_head);
  ApplyRope(keys_.data(), n, config.n_kv_head);
  cache.Append(layer, n, keys_.data(), values_.data(), query_.data(), &threads_);
  attention_.Attend({.cache = &cache,
                     .layer = layer,
                     .first_position = cache.length(),
                     .n_query = n,
                     .query = query_.data(),
                     .softmax_scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim)),
                     .output = attended_.data(),
                     .exact = exact_},
                    threads_);
  cache.FinishLayer(layer, cache.length() + n);
  const MatrixView<float> residual(x_.data(), n, config.n_embd);
  const ProductTarget out[] = {{&w.wo, residual, true}};
  matmul_.Run(out, {attended_.data(), n, q_row}, threads_);

  RmsNorm(x_.data(), w.ffn_norm, normed_.data(), n);
  matmul_.RunGated(w.gate, w.up, normed, {gated_.data(), n, config.n_ff}, threads_);
  const ProductTarget down[] = {{&w.down, residual, true}};
  matmul_.Run(down, {gated_.data(), n, config.n_ff}, threads_);
}

void ForwardPass::Logits(std::size_t first, std::size_t n, float* logits) {
  const ModelConfig& config = model_.config;
  RmsNorm(x_.data() + first * config.n_embd, model_.output_norm, normed_.data(), n);
  const ProductTarget head[] = {{&model_.output_head(), {logits, n, config.n_vocab}}};
  matmul_.Run(head, {normed_.data(), n, config.n_embd}, threads_);
}

}  // namespace kvant

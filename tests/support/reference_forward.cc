// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "tests/support/reference_forward.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "tests/support/weight_decode.h"

namespace kvant::test {
namespace {

struct Geometry {
  std::size_t n_layer, n_embd, n_q_head, n_kv_head, head_dim, n_rot, n_vocab;
  double rms_eps, rope_base;
};

// One column for each token. Stored dimension by dimension, so that a product with a row of weights
// runs over tokens in its innermost loop and adds each token's terms in the order of the row.
struct Columns {
  Columns(std::size_t dims, std::size_t tokens)
      : n_dim(dims), n_token(tokens), values(dims * tokens, 0.0) {}
  double& At(std::size_t dim, std::size_t token) { return values[dim * n_token + token]; }
  double At(std::size_t dim, std::size_t token) const { return values[dim * n_token + token]; }

  std::size_t n_dim, n_token;
  std::vector<double> values;  // [n_dim, n_token]
};

const GgufTensor& TensorOf(const GgufFile& file, const std::string& name) {
  const GgufTensor* tensor = file.FindTensor(name);
  if (tensor == nullptr) {
    Fail(ErrorCode::kCorruptData, "{}: tensor {} is missing", file.path(), name);
  }
  return *tensor;
}

Geometry ReadGeometry(const GgufFile& file) {
  const auto size = [&file](const char* key) { return static_cast<std::size_t>(file.GetInt(key)); };
  KVANT_CHECK(file.GetString("general.architecture") == "llama");
  Geometry g{};
  g.n_layer = size("llama.block_count");
  g.n_embd = size("llama.embedding_length");
  g.n_q_head = size("llama.attention.head_count");
  g.n_kv_head = static_cast<std::size_t>(
      file.GetIntOr("llama.attention.head_count_kv", static_cast<std::int64_t>(g.n_q_head)));
  g.head_dim = static_cast<std::size_t>(file.GetIntOr(
      "llama.attention.key_length", static_cast<std::int64_t>(g.n_embd / g.n_q_head)));
  g.n_rot = static_cast<std::size_t>(
      file.GetIntOr("llama.rope.dimension_count", static_cast<std::int64_t>(g.head_dim)));
  g.n_vocab = TensorOf(file, "token_embd.weight").dims.at(1);
  g.rms_eps = file.GetFloat("llama.attention.layer_norm_rms_epsilon");
  g.rope_base = file.GetFloatOr("llama.rope.freq_base", 10000.0);
  return g;
}

// y = W x for every token.
Columns Multiply(const GgufTensor& weight, const Columns& x) {
  KVANT_CHECK(weight.dims.size() == 2 && weight.dims[0] == x.n_dim);
  Columns y(weight.dims[1], x.n_token);
  for (std::size_t row = 0; row < y.n_dim; ++row) {
    const std::vector<double> w = DecodeRow(weight, row);
    double* out = &y.At(row, 0);
    for (std::size_t k = 0; k < x.n_dim; ++k) {
      const double* in = x.values.data() + k * x.n_token;
      for (std::size_t token = 0; token < x.n_token; ++token) out[token] += w[k] * in[token];
    }
  }
  return y;
}

// x / sqrt(mean(x^2) + eps) * weight.
Columns RmsNorm(const Columns& x, const GgufTensor& weight, double eps) {
  const std::vector<double> scale = DecodeRow(weight, 0);
  KVANT_CHECK(scale.size() == x.n_dim);
  Columns y(x.n_dim, x.n_token);
  for (std::size_t token = 0; token < x.n_token; ++token) {
    double square_sum = 0;
    for (std::size_t d = 0; d < x.n_dim; ++d) square_sum += x.At(d, token) * x.At(d, token);
    const double root = std::sqrt(square_sum / static_cast<double>(x.n_dim) + eps);
    for (std::size_t d = 0; d < x.n_dim; ++d) y.At(d, token) = x.At(d, token) / root * scale[d];
  }
  return y;
}

void AddTo(Columns& x, const Columns& term) {
  KVANT_CHECK(x.n_dim == term.n_dim && x.n_token == term.n_token);
  for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] += term.values[i];
}

// Turns the pairs (2i, 2i + 1) of each head by position * base^(-2i / n_rot) / factor[i]. GGUF
// files of this architecture store q and k weights permuted for adjacent pairs.
void Rope(Columns& x, std::size_t n_head, const Geometry& g, const std::vector<double>& factors) {
  for (std::size_t head = 0; head < n_head; ++head) {
    for (std::size_t i = 0; i < g.n_rot / 2; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(g.n_rot);
      const double factor = factors.empty() ? 1.0 : factors.at(i);
      const double frequency = std::pow(g.rope_base, exponent) / factor;
      for (std::size_t position = 0; position < x.n_token; ++position) {
        const double angle = static_cast<double>(position) * frequency;
        double& even = x.At(head * g.head_dim + 2 * i, position);
        double& odd = x.At(head * g.head_dim + 2 * i + 1, position);
        const double turned_even = even * std::cos(angle) - odd * std::sin(angle);
        const double turned_odd = even * std::sin(angle) + odd * std::cos(angle);
        even = turned_even;
        odd = turned_odd;
      }
    }
  }
}

// Causal attention: every query head reads KV head q_head / (n_q_head / n_kv_head).
Columns Attend(const Columns& q, const Columns& k, const Columns& v, const Geometry& g) {
  Columns out(q.n_dim, q.n_token);
  const std::size_t heads_per_kv = g.n_q_head / g.n_kv_head;
  for (std::size_t q_head = 0; q_head < g.n_q_head; ++q_head) {
    const std::size_t q_base = q_head * g.head_dim;
    const std::size_t kv_base = q_head / heads_per_kv * g.head_dim;
    for (std::size_t q_pos = 0; q_pos < q.n_token; ++q_pos) {
      std::vector<double> weights(q_pos + 1, 0.0);
      for (std::size_t kv_pos = 0; kv_pos <= q_pos; ++kv_pos) {
        double dot = 0;
        for (std::size_t d = 0; d < g.head_dim; ++d) {
          dot += q.At(q_base + d, q_pos) * k.At(kv_base + d, kv_pos);
        }
        weights[kv_pos] = dot / std::sqrt(static_cast<double>(g.head_dim));
      }
      const double largest = *std::max_element(weights.begin(), weights.end());
      double sum = 0;
      for (double& weight : weights) sum += weight = std::exp(weight - largest);
      for (std::size_t kv_pos = 0; kv_pos <= q_pos; ++kv_pos) {
        for (std::size_t d = 0; d < g.head_dim; ++d) {
          out.At(q_base + d, q_pos) += weights[kv_pos] / sum * v.At(kv_base + d, kv_pos);
        }
      }
    }
  }
  return out;
}

Columns SwiGlu(const Columns& gate, const Columns& up) {
  KVANT_CHECK(gate.n_dim == up.n_dim);
  Columns out(gate.n_dim, gate.n_token);
  for (std::size_t i = 0; i < out.values.size(); ++i) {
    const double g = gate.values[i];
    out.values[i] = g / (1 + std::exp(-g)) * up.values[i];
  }
  return out;
}

}  // namespace

std::vector<std::vector<double>> ReferenceLogits(const GgufFile& file,
                                                 std::span<const std::int32_t> ids) {
  const Geometry g = ReadGeometry(file);
  std::vector<double> factors;
  if (const GgufTensor* tensor = file.FindTensor("rope_freqs.weight"))
    factors = DecodeRow(*tensor, 0);

  const GgufTensor& embedding = TensorOf(file, "token_embd.weight");
  Columns x(g.n_embd, ids.size());
  for (std::size_t token = 0; token < ids.size(); ++token) {
    KVANT_CHECK(ids[token] >= 0 && static_cast<std::size_t>(ids[token]) < g.n_vocab);
    const std::vector<double> row = DecodeRow(embedding, static_cast<std::size_t>(ids[token]));
    for (std::size_t d = 0; d < g.n_embd; ++d) x.At(d, token) = row[d];
  }

  for (std::size_t layer = 0; layer < g.n_layer; ++layer) {
    const auto weight = [&](const char* part) -> const GgufTensor& {
      return TensorOf(file, fmt::format("blk.{}.{}.weight", layer, part));
    };
    const Columns attn_in = RmsNorm(x, weight("attn_norm"), g.rms_eps);
    Columns q = Multiply(weight("attn_q"), attn_in);
    Columns k = Multiply(weight("attn_k"), attn_in);
    const Columns v = Multiply(weight("attn_v"), attn_in);
    KVANT_CHECK(q.n_dim == g.n_q_head * g.head_dim && k.n_dim == g.n_kv_head * g.head_dim);
    KVANT_CHECK(v.n_dim == k.n_dim);
    Rope(q, g.n_q_head, g, factors);
    Rope(k, g.n_kv_head, g, factors);
    AddTo(x, Multiply(weight("attn_output"), Attend(q, k, v, g)));

    const Columns ffn_in = RmsNorm(x, weight("ffn_norm"), g.rms_eps);
    const Columns hidden =
        SwiGlu(Multiply(weight("ffn_gate"), ffn_in), Multiply(weight("ffn_up"), ffn_in));
    AddTo(x, Multiply(weight("ffn_down"), hidden));
  }

  const GgufTensor* head = file.FindTensor("output.weight");
  const Columns logits = Multiply(head != nullptr ? *head : embedding,
                                  RmsNorm(x, TensorOf(file, "output_norm.weight"), g.rms_eps));
  std::vector<std::vector<double>> rows(ids.size(), std::vector<double>(logits.n_dim));
  for (std::size_t token = 0; token < ids.size(); ++token) {
    for (std::size_t id = 0; id < logits.n_dim; ++id) rows[token][id] = logits.At(id, token);
  }
  return rows;
}

double NegativeLogLikelihood(std::span<const double> logits, std::int32_t id) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum) - logits[static_cast<std::size_t>(id)];
}

}  // namespace kvant::test

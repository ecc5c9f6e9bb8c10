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
  std::string architecture;
  std::size_t n_layer, n_embd, n_q_head, n_kv_head, head_dim, n_rot, n_vocab;
  std::size_t window;  // of local layers; 0: none
  double rms_eps, rope_base;
  std::string scaling;  // none, linear, yarn
  double factor, original_ctx;

  bool gemma() const { return architecture == "gemma3"; }
  bool local(std::size_t layer) const { return window != 0 && !(gemma() && layer % 6 == 5); }
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
  Geometry g{};
  g.architecture = file.GetString("general.architecture");
  const auto key = [&g](const char* name) { return g.architecture + "." + name; };
  const auto size = [&](const char* name) {
    return static_cast<std::size_t>(file.GetInt(key(name)));
  };
  const auto size_or = [&](const char* name, std::size_t fallback) {
    return static_cast<std::size_t>(file.GetIntOr(key(name), static_cast<std::int64_t>(fallback)));
  };
  g.n_layer = size("block_count");
  g.n_embd = size("embedding_length");
  g.n_q_head = size("attention.head_count");
  g.n_kv_head = size_or("attention.head_count_kv", g.n_q_head);
  g.head_dim = size_or("attention.key_length", g.n_embd / g.n_q_head);
  g.n_rot = size_or("rope.dimension_count", g.head_dim);
  g.window = size_or("attention.sliding_window", 0);
  g.n_vocab = TensorOf(file, "token_embd.weight").dims.at(1);
  g.rms_eps = file.GetFloat(key("attention.layer_norm_rms_epsilon"));
  g.rope_base = file.GetFloatOr(key("rope.freq_base"), 10000.0);
  g.scaling = file.GetStringOr(key("rope.scaling.type"), "none");
  g.factor = file.GetFloatOr(key("rope.scaling.factor"), 1.0);
  g.original_ctx = static_cast<double>(size_or("rope.scaling.original_context_length", 0));
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

// Radians a token. YaRN: a pair that turns r times within the original context keeps its frequency
// for r >= 32, is divided by the factor for r <= 1, with a straight line over the pairs between,
// whose ends are rounded to whole pairs (arXiv 2309.00071, section 3.2, as its authors' code has
// it).
double Frequency(const Geometry& g, std::size_t i, bool local, const std::vector<double>& factors) {
  const double n_rot = static_cast<double>(g.n_rot);
  const double base = local && g.gemma() ? 10000.0 : g.rope_base;
  const double plain = std::pow(base, -2.0 * static_cast<double>(i) / n_rot);
  if (local && g.gemma()) return plain;
  if (!factors.empty()) return plain / factors.at(i);
  if (g.scaling == "linear") return plain / g.factor;
  if (g.scaling != "yarn") return plain;
  const auto pair_of = [&](double turns) {
    return n_rot / 2 * std::log(g.original_ctx / (2 * std::acos(-1.0) * turns)) / std::log(base);
  };
  const double first = std::max(0.0, std::floor(pair_of(32)));
  const double last = std::min(n_rot - 1, std::ceil(pair_of(1)));
  const double at = static_cast<double>(i);
  if (at <= first) return plain;
  if (at >= last) return plain / g.factor;
  const double part = (at - first) / (last - first);
  return plain / g.factor * part + plain * (1 - part);
}

// Turns the pairs of each head. llama files store q and k weights permuted so that pairs are
// neighbours; in the others a pair is a channel of the first and one of the second half.
void Rope(Columns& x, std::size_t n_head, const Geometry& g, bool local,
          const std::vector<double>& factors) {
  const bool adjacent = g.architecture == "llama";
  const double magnitude = g.scaling == "yarn" ? 1 + 0.1 * std::log(g.factor) : 1;
  for (std::size_t head = 0; head < n_head; ++head) {
    for (std::size_t i = 0; i < g.n_rot / 2; ++i) {
      const double frequency = Frequency(g, i, local, factors);
      const std::size_t first = head * g.head_dim + (adjacent ? 2 * i : i);
      const std::size_t second = adjacent ? first + 1 : first + g.n_rot / 2;
      for (std::size_t position = 0; position < x.n_token; ++position) {
        const double angle = static_cast<double>(position) * frequency;
        const double a = x.At(first, position) * magnitude;
        const double b = x.At(second, position) * magnitude;
        x.At(first, position) = a * std::cos(angle) - b * std::sin(angle);
        x.At(second, position) = a * std::sin(angle) + b * std::cos(angle);
      }
    }
  }
}

// Each head of head_dim channels by itself.
void NormHeads(Columns& x, const GgufTensor& weight, const Geometry& g) {
  const std::vector<double> scale = DecodeRow(weight, 0);
  KVANT_CHECK(scale.size() == g.head_dim);
  for (std::size_t base = 0; base < x.n_dim; base += g.head_dim) {
    for (std::size_t token = 0; token < x.n_token; ++token) {
      double square_sum = 0;
      for (std::size_t d = 0; d < g.head_dim; ++d) {
        square_sum += x.At(base + d, token) * x.At(base + d, token);
      }
      const double root = std::sqrt(square_sum / static_cast<double>(g.head_dim) + g.rms_eps);
      for (std::size_t d = 0; d < g.head_dim; ++d) x.At(base + d, token) *= scale[d] / root;
    }
  }
}

void AddBias(Columns& x, const GgufTensor* bias) {
  if (bias == nullptr) return;
  const std::vector<double> values = DecodeRow(*bias, 0);
  KVANT_CHECK(values.size() == x.n_dim);
  for (std::size_t d = 0; d < x.n_dim; ++d) {
    for (std::size_t token = 0; token < x.n_token; ++token) x.At(d, token) += values[d];
  }
}

// Causal attention: every query head reads KV head q_head / (n_q_head / n_kv_head). With a window
// of n tokens (0: none) a query sees the n latest, its own included.
Columns Attend(const Columns& q, const Columns& k, const Columns& v, const Geometry& g,
               std::size_t window) {
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
        const bool hidden = window != 0 && q_pos - kv_pos >= window;
        weights[kv_pos] = hidden ? -INFINITY : dot / std::sqrt(static_cast<double>(g.head_dim));
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

Columns Gated(const Columns& gate, const Columns& up, bool gelu) {
  KVANT_CHECK(gate.n_dim == up.n_dim);
  Columns out(gate.n_dim, gate.n_token);
  for (std::size_t i = 0; i < out.values.size(); ++i) {
    const double g = gate.values[i];
    const double active =
        gelu ? g / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (g + 0.044715 * g * g * g)))
             : g / (1 + std::exp(-g));
    out.values[i] = active * up.values[i];
  }
  return out;
}

// What one layer adds to the stream, in its two parts.
class Layer {
 public:
  Layer(const GgufFile& file, const Geometry& g, std::size_t index,
        const std::vector<double>& factors)
      : file_(file), g_(g), index_(index), factors_(factors) {}

  Columns AttentionPart(const Columns& x) const {
    const Columns in = RmsNorm(x, Weight("attn_norm"), g_.rms_eps);
    Columns q = Multiply(Weight("attn_q"), in);
    Columns k = Multiply(Weight("attn_k"), in);
    Columns v = Multiply(Weight("attn_v"), in);
    KVANT_CHECK(q.n_dim == g_.n_q_head * g_.head_dim && k.n_dim == g_.n_kv_head * g_.head_dim);
    KVANT_CHECK(v.n_dim == k.n_dim);
    AddBias(q, file_.FindTensor(Name("attn_q.bias")));
    AddBias(k, file_.FindTensor(Name("attn_k.bias")));
    AddBias(v, file_.FindTensor(Name("attn_v.bias")));
    if (g_.gemma() || g_.architecture == "qwen3") {
      NormHeads(q, Weight("attn_q_norm"), g_);
      NormHeads(k, Weight("attn_k_norm"), g_);
    }
    Rope(q, g_.n_q_head, g_, g_.local(index_), factors_);
    Rope(k, g_.n_kv_head, g_, g_.local(index_), factors_);
    const Columns out =
        Multiply(Weight("attn_output"), Attend(q, k, v, g_, g_.local(index_) ? g_.window : 0));
    return g_.gemma() ? RmsNorm(out, Weight("post_attention_norm"), g_.rms_eps) : out;
  }

  Columns FeedForwardPart(const Columns& x) const {
    const Columns in = RmsNorm(x, Weight("ffn_norm"), g_.rms_eps);
    const Columns hidden =
        Gated(Multiply(Weight("ffn_gate"), in), Multiply(Weight("ffn_up"), in), g_.gemma());
    const Columns out = Multiply(Weight("ffn_down"), hidden);
    return g_.gemma() ? RmsNorm(out, Weight("post_ffw_norm"), g_.rms_eps) : out;
  }

 private:
  std::string Name(const char* part) const { return fmt::format("blk.{}.{}", index_, part); }
  const GgufTensor& Weight(const char* part) const {
    return TensorOf(file_, Name(part) + ".weight");
  }

  const GgufFile& file_;
  const Geometry& g_;
  std::size_t index_;
  const std::vector<double>& factors_;
};

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
    const double scale = g.gemma() ? std::sqrt(static_cast<double>(g.n_embd)) : 1;
    for (std::size_t d = 0; d < g.n_embd; ++d) x.At(d, token) = row[d] * scale;
  }

  for (std::size_t index = 0; index < g.n_layer; ++index) {
    const Layer layer(file, g, index, factors);
    AddTo(x, layer.AttentionPart(x));
    AddTo(x, layer.FeedForwardPart(x));
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

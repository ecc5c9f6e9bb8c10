// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/synthetic.h"

#include <cmath>
#include <memory>
#include <numbers>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/rng.h"
#include "llm/gguf_made.h"
#include "llm/synthetic_rows.h"

namespace kvant {
namespace {

constexpr std::string_view kKey = "kvant.synthetic";
// Another number where the same geometry and seed begin to give other weights.
constexpr int kRecipe = 1;
constexpr std::size_t kByteTokens = 256;
constexpr std::string_view kChatTemplate =
    "{% for message in messages %}{{ message['content'] }}{% endfor %}";

std::string Identity(const SyntheticGeometry& geometry) {
  return fmt::format("recipe={} {}", kRecipe, geometry.ToString());
}

std::uint64_t SeedOf(std::uint64_t seed, std::string_view name) {
  return SplitMix64(seed).Next() ^ Hash64Of(std::as_bytes(std::span(name)));
}

// Divisors of RoPE frequencies, by the published configuration of Llama 3.1: factor 8, low_freq_factor 1,
// high_freq_factor 4, 8,192 original positions. Pairs that turn more than 4 times within those keep their
// frequency, those that do not turn once are 8 times slower, between them it fades.
std::vector<float> Llama3Divisors(const SyntheticGeometry& geometry) {
  std::vector<float> divisors;
  const double n_rot = static_cast<double>(geometry.head_dim);
  for (std::size_t pair = 0; pair < geometry.head_dim / 2; ++pair) {
    const double frequency = std::pow(geometry.rope_base, -2.0 * static_cast<double>(pair) / n_rot);
    const double turns = 8192.0 * frequency / (2 * std::numbers::pi);
    double scale = 1;
    if (turns < 1) {
      scale = 1.0 / 8;
    } else if (turns < 4) {
      const double fade = (turns - 1) / (4 - 1);
      scale = (1 - fade) / 8 + fade;
    }
    divisors.push_back(static_cast<float>(1 / scale));
  }
  return divisors;
}

void AddHyperparameters(const SyntheticGeometry& geometry, gguf::MadeFile& file) {
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", geometry.arch, name); };
  const auto count = [&](std::string_view name, std::size_t value) {
    file.Add(key(name), static_cast<std::int64_t>(value));
  };
  file.Add("general.architecture", file.Keep(geometry.arch));
  file.Add("general.name", file.Keep(geometry.name));
  file.Add(std::string(kKey), file.Keep(Identity(geometry)));
  count("block_count", geometry.n_layer);
  count("context_length", geometry.ctx_limit);
  count("embedding_length", geometry.n_embd);
  count("feed_forward_length", geometry.n_ff);
  count("attention.head_count", geometry.n_q_head);
  count("attention.head_count_kv", geometry.n_kv_head);
  count("attention.key_length", geometry.head_dim);
  count("attention.value_length", geometry.head_dim);
  if (geometry.window != 0) count("attention.sliding_window", geometry.window);
  file.Add(key("rope.freq_base"), geometry.rope_base);
  file.Add(key("attention.layer_norm_rms_epsilon"), geometry.rms_eps);
}

// A vocabulary of SentencePiece's kind needs no merges and no pre-tokenizer.
void AddVocabulary(const SyntheticGeometry& geometry, gguf::MadeFile& file) {
  constexpr std::int64_t kUnused = 5, kByte = 6;  // tokenizer_table.h
  std::vector<std::string_view> tokens;
  std::vector<std::int64_t> types;
  for (std::size_t id = 0; id < geometry.n_vocab; ++id) {
    const bool is_byte = id < kByteTokens;
    tokens.push_back(file.Keep(is_byte ? fmt::format("<0x{:02X}>", id) : fmt::format("[{}]", id)));
    types.push_back(is_byte ? kByte : kUnused);
  }
  file.Add("tokenizer.ggml.model", std::string_view("llama"));
  file.Add("tokenizer.ggml.tokens", GgufArray{std::move(tokens)});
  file.Add("tokenizer.ggml.token_type", GgufArray{std::move(types)});
  file.Add("tokenizer.ggml.scores", GgufArray{std::vector<double>(geometry.n_vocab, 0.0)});
  file.Add("tokenizer.ggml.add_bos_token", false);
  file.Add("tokenizer.ggml.add_space_prefix", false);
  file.Add("tokenizer.chat_template", kChatTemplate);
}

// The deviations of the weights, by tensor; filled before the first row is made.
using Deviations = std::unordered_map<std::string, double>;

class TensorMaker {
 public:
  TensorMaker(const SyntheticGeometry& geometry, gguf::MadeFile& file, Deviations& deviations)
      : geometry_(geometry), file_(file), deviations_(deviations) {}

  // A product with inputs of unit size has entries of size `gain`.
  void Matrix(const std::string& name, std::size_t n_rows, std::size_t n_cols, double gain) {
    const bool whole = n_cols % InfoOf(WeightType::kQ4_K).block_values == 0;
    Add(name, geometry_.weights.value_or(whole ? WeightType::kQ4_K : WeightType::kQ4_0), n_rows, n_cols,
        gain);
  }
  void Head(const std::string& name, double gain) {
    const bool whole = geometry_.n_embd % InfoOf(WeightType::kQ6_K).block_values == 0;
    Add(name, whole ? WeightType::kQ6_K : WeightType::kQ8_0, geometry_.n_vocab, geometry_.n_embd, gain);
  }
  void Norm(const std::string& name, std::size_t size, double value = 1) {
    file_.AddVector(name, std::vector<float>(size, static_cast<float>(value)));
  }
  void Bias(const std::string& name, std::size_t size) {
    SplitMix64 rng(SeedOf(geometry_.seed, name));
    std::vector<float> values(size);
    for (float& value : values) value = static_cast<float>(rng.Uniform() - 0.5);
    file_.AddVector(name, std::move(values));
  }

 private:
  void Add(const std::string& name, WeightType type, std::size_t n_rows, std::size_t n_cols, double gain) {
    file_.AddMatrix(name, type, n_rows, n_cols);
    deviations_.emplace(name, gain / std::sqrt(static_cast<double>(n_cols)));
  }

  const SyntheticGeometry& geometry_;
  gguf::MadeFile& file_;
  Deviations& deviations_;
};

// Gains: scores spread by about 2 (peaked, not one-hot); each layer adds less than one unit to the stream.
void AddLayer(TensorMaker& make, const SyntheticGeometry& geometry, std::size_t layer) {
  const auto name = [layer](std::string_view part) { return fmt::format("blk.{}.{}", layer, part); };
  const std::size_t n_embd = geometry.n_embd;
  const std::size_t q_rows = geometry.n_q_head * geometry.head_dim;
  const std::size_t kv_rows = geometry.n_kv_head * geometry.head_dim;
  make.Norm(name("attn_norm.weight"), n_embd);
  make.Matrix(name("attn_q.weight"), q_rows, n_embd, std::numbers::sqrt2);
  make.Matrix(name("attn_k.weight"), kv_rows, n_embd, std::numbers::sqrt2);
  make.Matrix(name("attn_v.weight"), kv_rows, n_embd, 1);
  make.Matrix(name("attn_output.weight"), n_embd, q_rows, 0.7);
  make.Norm(name("ffn_norm.weight"), n_embd);
  make.Matrix(name("ffn_gate.weight"), geometry.n_ff, n_embd, 1.4);
  make.Matrix(name("ffn_up.weight"), geometry.n_ff, n_embd, 1);
  make.Matrix(name("ffn_down.weight"), n_embd, geometry.n_ff, 0.7);
  if (geometry.arch == "qwen2") {
    make.Bias(name("attn_q.bias"), q_rows);
    make.Bias(name("attn_k.bias"), kv_rows);
    make.Bias(name("attn_v.bias"), kv_rows);
  }
  if (geometry.arch == "qwen3" || geometry.arch == "gemma3") {
    make.Norm(name("attn_q_norm.weight"), geometry.head_dim, std::numbers::sqrt2);
    make.Norm(name("attn_k_norm.weight"), geometry.head_dim, std::numbers::sqrt2);
  }
  if (geometry.arch == "gemma3") {
    make.Norm(name("post_attention_norm.weight"), n_embd);
    make.Norm(name("post_ffw_norm.weight"), n_embd);
  }
}

}  // namespace

GgufFile MakeSynthetic(const SyntheticGeometry& geometry) {
  constexpr double kLogits = 2.5;
  const auto deviations = std::make_shared<Deviations>();
  const auto make_row = [deviations, seed = geometry.seed](const GgufTensor& tensor, std::size_t row,
                                                           std::span<std::byte> out) {
    const std::string name(tensor.name);
    const std::uint64_t row_seed = SplitMix64(SeedOf(seed, name) + row).Next();
    MakeRandomRow(tensor.type, deviations->at(name), row_seed, out);
  };
  auto file = std::make_unique<gguf::MadeFile>(
      fmt::format("{},seed={}", geometry.name, geometry.seed), make_row);
  AddHyperparameters(geometry, *file);
  AddVocabulary(geometry, *file);
  TensorMaker make(geometry, *file, *deviations);
  if (geometry.tied) {
    make.Head("token_embd.weight", kLogits);
  } else {
    make.Matrix("token_embd.weight", geometry.n_vocab, geometry.n_embd, 1);
    make.Head("output.weight", kLogits);
  }
  make.Norm("output_norm.weight", geometry.n_embd);
  if (geometry.llama3_rope) file->AddVector("rope_freqs.weight", Llama3Divisors(geometry));
  for (std::size_t i = 0; i < geometry.n_layer; ++i) AddLayer(make, geometry, i);
  return GgufFile::FromMade(std::move(file));
}

GgufFile OpenModel(const std::string& reference) {
  return IsSynthetic(reference) ? MakeSynthetic(ParseSynthetic(reference)) : GgufFile::Open(reference);
}

std::string_view ModelNotice(const GgufFile& file) {
  return file.Find(kKey) != nullptr ? kSyntheticNotice : std::string_view();
}

std::uint64_t SyntheticFingerprint(const SyntheticGeometry& geometry) {
  const std::string identity = Identity(geometry);
  return Hash64Of(std::as_bytes(std::span(identity)));
}

}  // namespace kvant

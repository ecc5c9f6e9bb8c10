// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/model.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"
#include "base/half.h"

namespace kvant {
namespace {

std::string ShapeText(const std::vector<std::uint64_t>& dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

// Hands out tensors, checks their shapes and remembers which ones were used.
class WeightLoader {
 public:
  WeightLoader(const GgufFile& file, ThreadPool& threads) : file_(file), threads_(threads) {}

  WeightMatrix Matrix(const std::string& name, std::size_t n_rows, std::size_t n_cols) {
    return WeightMatrix::Load(file_, Find(name, {n_cols, n_rows}), threads_);
  }
  bool Has(const std::string& name) const { return file_.FindTensor(name) != nullptr; }

  std::vector<float> Vector(const std::string& name, std::size_t size) {
    const GgufTensor& tensor = Find(name, {size});
    if (tensor.type != WeightType::kF32) {
      Fail(ErrorCode::kUnsupported, "{}: tensor '{}' has type {}; kvant reads it as F32",
           file_.path(), name, InfoOf(tensor.type).name);
    }
    std::vector<float> values(size);
    std::memcpy(values.data(), tensor.bytes.data(), size * sizeof(float));
    return values;
  }

  // A tensor that the forward pass does not know would change what the model means.
  void RefuseUnused() const {
    for (const GgufTensor& tensor : file_.tensors()) {
      if (used_.count(tensor.name) == 0) {
        Fail(ErrorCode::kUnsupported,
             "{}: tensor '{}' has no place in the architecture '{}' as kvant runs it; such a model "
             "is not supported",
             file_.path(), tensor.name, file_.GetString("general.architecture"));
      }
    }
  }

 private:
  const GgufTensor& Find(const std::string& name, const std::vector<std::uint64_t>& dims) {
    const GgufTensor* tensor = file_.FindTensor(name);
    if (tensor == nullptr) {
      Fail(ErrorCode::kCorruptData, "{}: tensor '{}' is missing; the file is not a complete model",
           file_.path(), name);
    }
    // Trailing dimensions of 1 say nothing.
    std::vector<std::uint64_t> found = tensor->dims;
    while (found.size() > dims.size() && found.back() == 1) found.pop_back();
    if (found != dims) {
      Fail(ErrorCode::kCorruptData, "{}: tensor '{}' has shape {}; its metadata asks for {}",
           file_.path(), name, ShapeText(tensor->dims), ShapeText(dims));
    }
    used_.insert(tensor->name);
    return *tensor;
  }

  const GgufFile& file_;
  ThreadPool& threads_;
  std::set<std::string_view> used_;
};

LayerWeights LoadLayer(WeightLoader& loader, const ModelConfig& config, std::size_t index) {
  const auto name = [index](std::string_view part) {
    return fmt::format("blk.{}.{}.weight", index, part);
  };
  const auto bias = [&](std::string_view part, std::size_t size) -> std::vector<float> {
    const std::string full = fmt::format("blk.{}.{}.bias", index, part);
    if (!config.traits->qkv_bias && !loader.Has(full)) return {};
    return loader.Vector(full, size);
  };
  const std::size_t q_rows = config.n_q_head * config.head_dim;
  const std::size_t kv_rows = config.n_kv_head * config.head_dim;
  LayerWeights layer;
  layer.attn_norm = loader.Vector(name("attn_norm"), config.n_embd);
  layer.wq = loader.Matrix(name("attn_q"), q_rows, config.n_embd);
  layer.wk = loader.Matrix(name("attn_k"), kv_rows, config.n_embd);
  layer.wv = loader.Matrix(name("attn_v"), kv_rows, config.n_embd);
  layer.q_bias = bias("attn_q", q_rows);
  layer.k_bias = bias("attn_k", kv_rows);
  layer.v_bias = bias("attn_v", kv_rows);
  if (config.traits->qk_norm) {
    layer.q_norm = loader.Vector(name("attn_q_norm"), config.head_dim);
    layer.k_norm = loader.Vector(name("attn_k_norm"), config.head_dim);
  }
  layer.wo = loader.Matrix(name("attn_output"), config.n_embd, q_rows);
  layer.ffn_norm = loader.Vector(name("ffn_norm"), config.n_embd);
  layer.gate = loader.Matrix(name("ffn_gate"), config.n_ff, config.n_embd);
  layer.up = loader.Matrix(name("ffn_up"), config.n_ff, config.n_embd);
  layer.down = loader.Matrix(name("ffn_down"), config.n_embd, config.n_ff);
  if (config.traits->post_norms) {
    layer.attn_post_norm = loader.Vector(name("post_attention_norm"), config.n_embd);
    layer.ffn_post_norm = loader.Vector(name("post_ffw_norm"), config.n_embd);
  }
  return layer;
}

}  // namespace

Model Model::Load(const GgufFile& file, ThreadPool& threads) {
  Model model;
  model.config = ReadModelConfig(file);
  const ModelConfig& config = model.config;
  WeightLoader loader(file, threads);
  model.embedding = loader.Matrix("token_embd.weight", config.n_vocab, config.n_embd);
  if (loader.Has("output.weight")) {
    model.head = loader.Matrix("output.weight", config.n_vocab, config.n_embd);
  }
  model.output_norm = loader.Vector("output_norm.weight", config.n_embd);
  std::vector<float> divisors;
  if (loader.Has("rope_freqs.weight")) {
    divisors = loader.Vector("rope_freqs.weight", config.n_rot / 2);
  }
  model.rope = MakeRope(config, false, divisors);
  if (config.has_local_rope()) model.local_rope = MakeRope(config, true, {});
  for (std::size_t i = 0; i < config.n_layer; ++i) {
    model.layers.push_back(LoadLayer(loader, config, i));
  }
  loader.RefuseUnused();
  return model;
}

std::uint64_t Model::weight_bytes() const {
  std::uint64_t bytes = embedding.bytes() + head.bytes();
  for (const LayerWeights& layer : layers) {
    for (const WeightMatrix* matrix :
         {&layer.wq, &layer.wk, &layer.wv, &layer.wo, &layer.gate, &layer.up, &layer.down}) {
      bytes += matrix->bytes();
    }
  }
  return bytes;
}

std::string WeightTypeSummary(const GgufFile& file) {
  std::map<std::string_view, std::size_t> counts;
  for (const GgufTensor& tensor : file.tensors()) ++counts[InfoOf(tensor.type).name];
  std::vector<std::pair<std::size_t, std::string_view>> order;
  for (const auto& [name, count] : counts) order.emplace_back(count, name);
  std::sort(order.rbegin(), order.rend());
  std::string text;
  for (const auto& [count, name] : order) {
    text += fmt::format("{}{} x{}", text.empty() ? "" : ", ", name, count);
  }
  return text;
}

}  // namespace kvant

// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"
#include "base/half.h"

namespace kvant {
namespace {

// Bounds that no real model of this family passes; beyond them a file is damaged or hostile.
constexpr std::int64_t kMaxLayers = 1024;
constexpr std::int64_t kMaxWidth = 1 << 20;
constexpr std::int64_t kMaxHeads = 4096;
constexpr std::int64_t kMaxContext = std::int64_t{1} << 32;

class ConfigReader {
 public:
  explicit ConfigReader(const GgufFile& file)
      : file_(file), architecture_(file.GetString("general.architecture")) {}

  const std::string& architecture() const { return architecture_; }
  std::string Key(std::string_view name) const { return fmt::format("{}.{}", architecture_, name); }

  std::size_t Count(std::string_view name, std::int64_t max) const {
    return Checked(name, file_.GetInt(Key(name)), max);
  }
  std::size_t CountOr(std::string_view name, std::int64_t max, std::size_t fallback) const {
    if (file_.Find(Key(name)) == nullptr) return fallback;
    return Count(name, max);
  }

 private:
  std::size_t Checked(std::string_view name, std::int64_t value, std::int64_t max) const {
    if (value < 1 || value > max) {
      Fail(ErrorCode::kCorruptData, "{}: {} is {}; allowed are 1 to {}", file_.path(), Key(name), value,
           max);
    }
    return static_cast<std::size_t>(value);
  }

  const GgufFile& file_;
  std::string architecture_;
};

void RefuseUnsupportedFeatures(const GgufFile& file, const ConfigReader& reader) {
  if (file.GetIntOr(reader.Key("expert_count"), 0) != 0) {
    Fail(ErrorCode::kUnsupported, "{} is a mixture of experts; kvant runs dense llama models",
         file.path());
  }
  const std::string_view scaling = file.GetStringOr(reader.Key("rope.scaling.type"), "none");
  if (scaling != "none") {
    Fail(ErrorCode::kUnsupported,
         "{} wants RoPE scaling '{}'; kvant runs models without scaling (or with rope_freqs.weight)",
         file.path(), scaling);
  }
  const std::int64_t window = file.GetIntOr(reader.Key("attention.sliding_window"), 0);
  if (window != 0) {
    Fail(ErrorCode::kUnsupported,
         "{} wants sliding-window attention over {} tokens; kvant runs full attention", file.path(),
         window);
  }
}

std::string ShapeText(const std::vector<std::uint64_t>& dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

// Hands out tensors, checks their shapes and remembers which ones were used.
class WeightLoader {
 public:
  // `threads` repack matrices; a loader of vectors alone needs none.
  WeightLoader(const GgufFile& file, ThreadPool* threads) : file_(file), threads_(threads) {}

  WeightMatrix Matrix(const std::string& name, std::size_t n_rows, std::size_t n_cols) {
    return WeightMatrix::Load(file_, Find(name, {n_cols, n_rows}), *threads_);
  }
  bool Has(const std::string& name) const { return file_.FindTensor(name) != nullptr; }

  std::vector<float> Vector(const std::string& name, std::size_t size) {
    const GgufTensor& tensor = Find(name, {size});
    if (tensor.type != WeightType::kF32) {
      Fail(ErrorCode::kUnsupported, "{}: tensor '{}' has type {}; kvant reads it as F32", file_.path(),
           name, InfoOf(tensor.type).name);
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
             "{}: tensor '{}' has no place in the llama architecture as kvant runs it; such a model is "
             "not supported",
             file_.path(), tensor.name);
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
  ThreadPool* threads_;
  std::set<std::string_view> used_;
};

RopeGeometry LoadRope(WeightLoader& loader, const ModelConfig& config) {
  std::vector<float> divisors(config.n_rot / 2, 1.0f);
  if (loader.Has("rope_freqs.weight")) divisors = loader.Vector("rope_freqs.weight", divisors.size());
  RopeGeometry rope;
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(config.n_rot);
    rope.frequency.push_back(std::pow(config.rope_base, exponent) / static_cast<double>(divisors[i]));
  }
  return rope;
}

LayerWeights LoadLayer(WeightLoader& loader, const ModelConfig& config, std::size_t index) {
  const auto name = [index](std::string_view part) {
    return fmt::format("blk.{}.{}.weight", index, part);
  };
  const std::size_t q_rows = config.n_q_head * config.head_dim;
  const std::size_t kv_rows = config.n_kv_head * config.head_dim;
  LayerWeights layer;
  layer.attn_norm = loader.Vector(name("attn_norm"), config.n_embd);
  layer.wq = loader.Matrix(name("attn_q"), q_rows, config.n_embd);
  layer.wk = loader.Matrix(name("attn_k"), kv_rows, config.n_embd);
  layer.wv = loader.Matrix(name("attn_v"), kv_rows, config.n_embd);
  layer.wo = loader.Matrix(name("attn_output"), config.n_embd, q_rows);
  layer.ffn_norm = loader.Vector(name("ffn_norm"), config.n_embd);
  layer.gate = loader.Matrix(name("ffn_gate"), config.n_ff, config.n_embd);
  layer.up = loader.Matrix(name("ffn_up"), config.n_ff, config.n_embd);
  layer.down = loader.Matrix(name("ffn_down"), config.n_embd, config.n_ff);
  return layer;
}

}  // namespace

ModelConfig ReadModelConfig(const GgufFile& file) {
  const ConfigReader reader(file);
  if (reader.architecture() != "llama") {
    Fail(ErrorCode::kUnsupported, "{} has architecture '{}'; this version of kvant runs: llama",
         file.path(), reader.architecture());
  }
  RefuseUnsupportedFeatures(file, reader);
  ModelConfig config;
  config.architecture = reader.architecture();
  config.name = file.GetStringOr("general.name", "");
  config.n_layer = reader.Count("block_count", kMaxLayers);
  config.n_embd = reader.Count("embedding_length", kMaxWidth);
  config.n_ff = reader.Count("feed_forward_length", kMaxWidth);
  config.n_q_head = reader.Count("attention.head_count", kMaxHeads);
  config.n_kv_head = reader.CountOr("attention.head_count_kv", kMaxHeads, config.n_q_head);
  config.ctx_limit = reader.Count("context_length", kMaxContext);
  if (config.n_q_head % config.n_kv_head != 0) {
    Fail(ErrorCode::kCorruptData, "{}: {} query heads cannot share {} KV heads evenly", file.path(),
         config.n_q_head, config.n_kv_head);
  }
  if (file.Find(reader.Key("attention.key_length")) == nullptr &&
      config.n_embd % config.n_q_head != 0) {
    Fail(ErrorCode::kCorruptData, "{}: embedding_length {} is not a multiple of {} heads", file.path(),
         config.n_embd, config.n_q_head);
  }
  config.head_dim =
      reader.CountOr("attention.key_length", kMaxWidth, config.n_embd / config.n_q_head);
  if (reader.CountOr("attention.value_length", kMaxWidth, config.head_dim) != config.head_dim) {
    Fail(ErrorCode::kUnsupported, "{}: keys and values of different length are not supported",
         file.path());
  }
  config.n_rot = reader.CountOr("rope.dimension_count", kMaxWidth, config.head_dim);
  if (config.n_rot % 2 != 0 || config.n_rot > config.head_dim) {
    Fail(ErrorCode::kCorruptData, "{}: RoPE turns {} of {} dimensions; it must be even and not more",
         file.path(), config.n_rot, config.head_dim);
  }
  config.rms_eps =
      static_cast<float>(file.GetFloat(reader.Key("attention.layer_norm_rms_epsilon")));
  config.rope_base = file.GetFloatOr(reader.Key("rope.freq_base"), 10000.0);
  if (!(config.rope_base > 0) || !std::isfinite(config.rope_base) || !(config.rms_eps >= 0) ||
      !std::isfinite(config.rms_eps)) {
    Fail(ErrorCode::kCorruptData, "{}: rope.freq_base {} or layer_norm_rms_epsilon {} is not usable",
         file.path(), config.rope_base, config.rms_eps);
  }
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr || embedding->dims.size() != 2) {
    Fail(ErrorCode::kCorruptData, "{}: tensor 'token_embd.weight' is missing or not a matrix",
         file.path());
  }
  config.n_vocab = embedding->dims[1];
  return config;
}

RopeGeometry ReadRope(const GgufFile& file, const ModelConfig& config) {
  WeightLoader loader(file, nullptr);
  return LoadRope(loader, config);
}

CacheGeometry ReadCacheGeometry(const GgufFile& file, const ModelConfig& config) {
  return {.n_layer = config.n_layer,
          .n_kv_head = config.n_kv_head,
          .heads_per_kv = config.heads_per_kv(),
          .head_dim = config.head_dim,
          .rope = std::make_shared<const RopeGeometry>(ReadRope(file, config))};
}

Model Model::Load(const GgufFile& file, ThreadPool& threads) {
  Model model;
  model.config = ReadModelConfig(file);
  const ModelConfig& config = model.config;
  WeightLoader loader(file, &threads);
  model.embedding = loader.Matrix("token_embd.weight", config.n_vocab, config.n_embd);
  if (loader.Has("output.weight")) {
    model.head = loader.Matrix("output.weight", config.n_vocab, config.n_embd);
  }
  model.output_norm = loader.Vector("output_norm.weight", config.n_embd);
  model.rope = LoadRope(loader, config);
  for (std::size_t i = 0; i < config.n_layer; ++i) {
    model.layers.push_back(LoadLayer(loader, config, i));
  }
  loader.RefuseUnused();
  return model;
}

std::uint64_t Model::weight_bytes() const {
  std::uint64_t bytes = embedding.bytes() + head.bytes();
  for (const LayerWeights& layer : layers) {
    for (const WeightMatrix* matrix : {&layer.wq, &layer.wk, &layer.wv, &layer.wo, &layer.gate,
                                       &layer.up, &layer.down}) {
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

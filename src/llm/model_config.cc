// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/model_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/error.h"

namespace kvant {
namespace {

// Bounds that no real model of this family passes; beyond them a file is damaged or hostile.
constexpr std::int64_t kMaxLayers = 1024;
constexpr std::int64_t kMaxWidth = 1 << 20;
constexpr std::int64_t kMaxHeads = 4096;
constexpr std::int64_t kMaxContext = std::int64_t{1} << 32;
constexpr double kMaxScaling = 1e6;
constexpr double kMaxRopeBase = 1e15;

// Gemma 3's largest model scales scores by the width of the model for each head, all others by
// head_dim (its technical report, arXiv 2503.19786, and its published configuration).
constexpr std::size_t kGemma3LargestLayers = 62;

constexpr std::array kArchitectures = {
    // Its weights are permuted in GGUF so that turned channels are neighbours. Mistral goes by this
    // name.
    ArchitectureTraits{.name = "llama", .adjacent_pairs = true, .windows = true},
    ArchitectureTraits{.name = "qwen2", .qkv_bias = true},
    ArchitectureTraits{.name = "qwen3", .qk_norm = true},
    ArchitectureTraits{.name = "gemma3",
                       .qk_norm = true,
                       .post_norms = true,
                       .scaled_embedding = true,
                       .windows = true,
                       .global_every = 6,
                       .activation = Activation::kGeluTanh},
};

const ArchitectureTraits& TraitsOf(const GgufFile& file) {
  const std::string_view name = file.GetString("general.architecture");
  std::string known;
  for (const ArchitectureTraits& traits : kArchitectures) {
    if (traits.name == name) return traits;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", traits.name);
  }
  Fail(ErrorCode::kUnsupported, "{} has architecture '{}'; this version of kvant runs: {}",
       file.path(), name, known);
}

class ConfigReader {
 public:
  ConfigReader(const GgufFile& file, std::string_view architecture)
      : file_(file), architecture_(architecture) {}

  const GgufFile& file() const { return file_; }
  std::string Key(std::string_view name) const { return fmt::format("{}.{}", architecture_, name); }
  bool Has(std::string_view name) const { return file_.Find(Key(name)) != nullptr; }

  std::size_t Count(std::string_view name, std::int64_t max) const {
    return Checked(name, file_.GetInt(Key(name)), max);
  }
  std::size_t CountOr(std::string_view name, std::int64_t max, std::size_t fallback) const {
    return Has(name) ? Count(name, max) : fallback;
  }
  /// In (0, max].
  double Positive(std::string_view name, double fallback, double max) const {
    const double value = file_.GetFloatOr(Key(name), fallback);
    if (!(value > 0) || !(value <= max)) {
      Fail(ErrorCode::kCorruptData, "{}: {} is {}; allowed is more than 0 up to {}", file_.path(),
           Key(name), value, max);
    }
    return value;
  }

 private:
  std::size_t Checked(std::string_view name, std::int64_t value, std::int64_t max) const {
    if (value < 1 || value > max) {
      Fail(ErrorCode::kCorruptData, "{}: {} is {}; allowed are 1 to {}", file_.path(), Key(name),
           value, max);
    }
    return static_cast<std::size_t>(value);
  }

  const GgufFile& file_;
  std::string architecture_;
};

void RefuseUnsupportedFeatures(const ConfigReader& reader) {
  const GgufFile& file = reader.file();
  if (file.GetIntOr(reader.Key("expert_count"), 0) != 0) {
    Fail(ErrorCode::kUnsupported, "{} is a mixture of experts; kvant runs dense models",
         file.path());
  }
  for (const std::string_view cap : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (file.GetFloatOr(reader.Key(cap), 0.0) != 0) {
      Fail(ErrorCode::kUnsupported, "{} caps its logits ({}); kvant runs models without such a cap",
           file.path(), reader.Key(cap));
    }
  }
}

void ReadHeads(const ConfigReader& reader, ModelConfig& config) {
  const std::string& path = reader.file().path();
  config.n_q_head = reader.Count("attention.head_count", kMaxHeads);
  config.n_kv_head = reader.CountOr("attention.head_count_kv", kMaxHeads, config.n_q_head);
  if (config.n_q_head % config.n_kv_head != 0) {
    Fail(ErrorCode::kCorruptData, "{}: {} query heads cannot share {} KV heads evenly", path,
         config.n_q_head, config.n_kv_head);
  }
  if (!reader.Has("attention.key_length") && config.n_embd % config.n_q_head != 0) {
    Fail(ErrorCode::kCorruptData, "{}: embedding_length {} is not a multiple of {} heads", path,
         config.n_embd, config.n_q_head);
  }
  config.head_dim =
      reader.CountOr("attention.key_length", kMaxWidth, config.n_embd / config.n_q_head);
  if (reader.CountOr("attention.value_length", kMaxWidth, config.head_dim) != config.head_dim) {
    Fail(ErrorCode::kUnsupported, "{}: keys and values of different length are not supported",
         path);
  }
  const bool by_width = config.traits->name == "gemma3" && config.n_layer == kGemma3LargestLayers;
  const std::size_t scaled_by = by_width ? config.n_embd / config.n_q_head : config.head_dim;
  config.softmax_scale = 1.0f / std::sqrt(static_cast<float>(scaled_by));
}

void ReadWindow(const ConfigReader& reader, ModelConfig& config) {
  const std::int64_t window = reader.file().GetIntOr(reader.Key("attention.sliding_window"), 0);
  if (window == 0) return;
  if (!config.traits->windows) {
    Fail(ErrorCode::kUnsupported,
         "{} wants sliding-window attention over {} tokens; kvant runs {} models without it",
         reader.file().path(), window, config.architecture);
  }
  config.window = reader.Count("attention.sliding_window", kMaxContext);
  const GgufValue* pattern = reader.file().Find(reader.Key("attention.sliding_window_pattern"));
  if (pattern == nullptr) return;
  const auto* every = std::get_if<std::int64_t>(pattern);
  if (every == nullptr || *every != static_cast<std::int64_t>(config.traits->global_every)) {
    Fail(ErrorCode::kUnsupported, "{}: {} is not {}, the only pattern that kvant runs for {}",
         reader.file().path(), reader.Key("attention.sliding_window_pattern"),
         config.traits->global_every, config.architecture);
  }
}

RopeScaling ReadScaling(const ConfigReader& reader, const ModelConfig& config) {
  const GgufFile& file = reader.file();
  RopeScaling scaling;
  const std::string_view type = file.GetStringOr(reader.Key("rope.scaling.type"), "none");
  if (reader.Has("rope.scale_linear")) {  // as older files say it
    scaling.factor = reader.Positive("rope.scale_linear", 1, kMaxScaling);
  }
  if (type == "none") return scaling;
  if (type != "linear" && type != "yarn") {
    Fail(
        ErrorCode::kUnsupported,
        "{} wants RoPE scaling '{}'; kvant runs none, linear, yarn, and tables (rope_freqs.weight)",
        file.path(), type);
  }
  scaling.factor = reader.Positive("rope.scaling.factor", 1, kMaxScaling);
  if (type == "linear") return scaling;
  scaling.original_ctx = static_cast<double>(
      reader.CountOr("rope.scaling.original_context_length", kMaxContext, config.ctx_limit));
  scaling.beta_fast = reader.Positive("rope.scaling.yarn_beta_fast", 32, kMaxScaling);
  scaling.beta_slow = reader.Positive("rope.scaling.yarn_beta_slow", 1, kMaxScaling);
  scaling.attention_factor = reader.Positive("rope.scaling.attn_factor", 1, kMaxScaling);
  return scaling;
}

void ReadRope(const ConfigReader& reader, ModelConfig& config) {
  config.n_rot = reader.CountOr("rope.dimension_count", kMaxWidth, config.head_dim);
  if (config.n_rot % 2 != 0 || config.n_rot > config.head_dim) {
    Fail(ErrorCode::kCorruptData,
         "{}: RoPE turns {} of {} dimensions; it must be even and not more", reader.file().path(),
         config.n_rot, config.head_dim);
  }
  config.rope_base = reader.Positive("rope.freq_base", 10000.0, kMaxRopeBase);
  config.local_rope_base = reader.Positive("rope.freq_base_swa", 10000.0, kMaxRopeBase);
  config.rope_scaling = ReadScaling(reader, config);
}

// The pair that turns `turns` times within the original context, as a fraction (YaRN, section 3.2).
double PairOfTurns(const ModelConfig& config, double turns) {
  const double n_rot = static_cast<double>(config.n_rot);
  return n_rot * std::log(config.rope_scaling.original_ctx / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(config.rope_base));
}

// What a pair's frequency is multiplied with: between 1 / factor for slow pairs and 1 for fast
// ones.
double FrequencyScale(const ModelConfig& config, std::size_t pair) {
  const RopeScaling& scaling = config.rope_scaling;
  if (scaling.original_ctx == 0) return 1 / scaling.factor;
  const double first = std::max(std::floor(PairOfTurns(config, scaling.beta_fast)), 0.0);
  const double last = std::min(std::ceil(PairOfTurns(config, scaling.beta_slow)),
                               static_cast<double>(config.n_rot) - 1);
  const double ramp =
      std::clamp((static_cast<double>(pair) - first) / std::max(last - first, 0.001), 0.0, 1.0);
  return ramp / scaling.factor + (1 - ramp);
}

std::vector<float> ReadDivisors(const GgufFile& file, const ModelConfig& config) {
  const GgufTensor* tensor = file.FindTensor("rope_freqs.weight");
  if (tensor == nullptr) return {};
  if (tensor->type != WeightType::kF32 || tensor->dims.empty() ||
      tensor->bytes.size() != config.n_rot / 2 * sizeof(float)) {
    Fail(ErrorCode::kCorruptData, "{}: tensor 'rope_freqs.weight' is not {} numbers of type F32",
         file.path(), config.n_rot / 2);
  }
  std::vector<float> divisors(config.n_rot / 2);
  std::memcpy(divisors.data(), tensor->bytes.data(), tensor->bytes.size());
  return divisors;
}

}  // namespace

double ModelConfig::rope_magnitude() const {
  if (rope_scaling.original_ctx == 0) return 1;
  return rope_scaling.attention_factor * (0.1 * std::log(rope_scaling.factor) + 1);
}

ModelConfig ReadModelConfig(const GgufFile& file) {
  ModelConfig config;
  config.traits = &TraitsOf(file);
  config.architecture = config.traits->name;
  const ConfigReader reader(file, config.traits->name);
  RefuseUnsupportedFeatures(reader);
  config.name = file.GetStringOr("general.name", "");
  config.n_layer = reader.Count("block_count", kMaxLayers);
  config.n_embd = reader.Count("embedding_length", kMaxWidth);
  config.n_ff = reader.Count("feed_forward_length", kMaxWidth);
  config.ctx_limit = reader.Count("context_length", kMaxContext);
  ReadHeads(reader, config);
  ReadWindow(reader, config);
  ReadRope(reader, config);
  config.rms_eps =
      static_cast<float>(file.GetFloat(reader.Key("attention.layer_norm_rms_epsilon")));
  if (!(config.rms_eps >= 0) || !std::isfinite(config.rms_eps)) {
    Fail(ErrorCode::kCorruptData, "{}: layer_norm_rms_epsilon {} is not usable", file.path(),
         config.rms_eps);
  }
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr || embedding->dims.size() != 2) {
    Fail(ErrorCode::kCorruptData, "{}: tensor 'token_embd.weight' is missing or not a matrix",
         file.path());
  }
  config.n_vocab = embedding->dims[1];
  return config;
}

RopeGeometry MakeRope(const ModelConfig& config, bool local, const std::vector<float>& divisors) {
  RopeGeometry rope;
  rope.adjacent_pairs = config.traits->adjacent_pairs;
  const double base = local ? config.local_rope_base : config.rope_base;
  for (std::size_t i = 0; i < config.n_rot / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(config.n_rot);
    double frequency = std::pow(base, exponent);
    if (!local) frequency *= FrequencyScale(config, i);
    if (!divisors.empty()) frequency /= static_cast<double>(divisors[i]);
    rope.frequency.push_back(frequency);
  }
  return rope;
}

CacheGeometry ReadCacheGeometry(const GgufFile& file, const ModelConfig& config) {
  const std::vector<float> divisors = ReadDivisors(file, config);
  CacheGeometry geometry = {
      .n_layer = config.n_layer,
      .n_kv_head = config.n_kv_head,
      .heads_per_kv = config.heads_per_kv(),
      .head_dim = config.head_dim,
      .rope = std::make_shared<const RopeGeometry>(MakeRope(config, false, divisors))};
  if (!config.has_local_rope()) return geometry;
  const auto local = std::make_shared<const RopeGeometry>(MakeRope(config, true, {}));
  for (std::size_t i = 0; i < config.n_layer; ++i) {
    geometry.layer_ropes.push_back(config.is_local(i) ? local : geometry.rope);
  }
  return geometry;
}

}  // namespace kvant

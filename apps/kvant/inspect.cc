// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// kvant inspect: what a model file holds and what its cache will cost, without loading the weights; with
// --probe also what its keys look like on a text.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <set>

#include "apps/kvant/commands.h"
#include "apps/kvant/options.h"
#include "base/error.h"
#include "base/system.h"
#include "engine/engine.h"
#include "kv/registry.h"
#include "kv/resolved_method.h"
#include "llm/gguf.h"
#include "llm/model.h"
#include "llm/synthetic.h"

namespace kvant::cli {
namespace {

// A channel this many times above the median one is worth a warning: it takes the range of a shared scale.
constexpr float kOutlierRatio = 8.0f;

struct InspectOptions {
  CommonOptions common;
  std::string probe;
  bool has_kv = false;
  bool has_probe = false;
  bool tensors = false;
};

// Layers whose queries see a window of the latest tokens only.
std::size_t LocalLayers(const ModelConfig& config) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < config.n_layer; ++i) n += config.is_local(i) ? 1 : 0;
  return n;
}

nlohmann::json GeometryJson(const GgufFile& file, const ModelConfig& config) {
  return {{"architecture", config.architecture},
          {"name", config.name},
          {"n_layer", config.n_layer},
          {"n_embd", config.n_embd},
          {"n_ff", config.n_ff},
          {"n_q_head", config.n_q_head},
          {"n_kv_head", config.n_kv_head},
          {"heads_per_kv", config.heads_per_kv()},
          {"head_dim", config.head_dim},
          {"n_rot", config.n_rot},
          {"rope_base", config.rope_base},
          {"window", config.window},
          {"n_local_layer", LocalLayers(config)},
          {"n_vocab", config.n_vocab},
          {"ctx_limit", config.ctx_limit},
          {"file_bytes", file.file_bytes()},
          {"weight_types", WeightTypeSummary(file)}};
}

nlohmann::json TensorsJson(const GgufFile& file) {
  nlohmann::json tensors = nlohmann::json::array();
  for (const GgufTensor& tensor : file.tensors()) {
    tensors.push_back({{"name", tensor.name},
                       {"type", InfoOf(tensor.type).name},
                       {"dims", tensor.dims},
                       {"bytes", tensor.bytes.size()}});
  }
  return tensors;
}

// Layers whose keys get a bias: such models have outlier channels that low-bit keys do not survive.
nlohmann::json KeyBiasJson(const GgufFile& file, const ModelConfig& config) {
  nlohmann::json layers = nlohmann::json::array();
  for (std::size_t i = 0; i < config.n_layer; ++i) {
    if (file.FindTensor(fmt::format("blk.{}.attn_k.bias", i)) != nullptr) layers.push_back(i);
  }
  return layers;
}

// Runs the text through the model and looks at the keys that it leaves in an exact cache.
nlohmann::json ProbeJson(const InspectOptions& options) {
  EngineOptions engine_options = options.common.ToEngineOptions();
  engine_options.kv_spec = "bf16";  // holds keys that overflow half
  Engine engine(engine_options);
  const std::vector<TokenId> ids = engine.tokenizer().Encode(options.probe, /*parse_special=*/false);
  Session session = engine.NewSession();
  Sampler greedy{SamplerOptions{}};
  session.Generate(ids, greedy, {.max_new_tokens = 0});
  nlohmann::json layers = nlohmann::json::array();
  for (std::size_t layer = 0; layer < engine.summary().n_layer; ++layer) {
    const KeyChannels keys = session.InspectKeys(layer);
    const float ratio = keys.median_channel_max > 0 ? keys.max_abs / keys.median_channel_max : 0;
    layers.push_back({{"layer", layer},
                      {"max_abs", keys.max_abs},
                      {"kv_head", keys.max_kv_head},
                      {"dim", keys.max_dim},
                      {"median_channel_max", keys.median_channel_max},
                      {"max_abs_mean", keys.max_abs_mean},
                      {"ratio", ratio},
                      {"outlier", ratio > kOutlierRatio}});
  }
  return {{"tokens", session.kv_len()}, {"layers", layers}};
}

void PrintProbe(const nlohmann::json& probe) {
  fmt::print("\nKeys over {} probe tokens (largest |key| and its channel, median channel, largest |mean|)\n",
             probe["tokens"].get<std::size_t>());
  for (const auto& layer : probe["layers"]) {
    fmt::print("  layer {:>3}  {:>9.2f} (head {}, dim {:>3})  {:>8.2f}  {:>8.2f}{}\n",
               layer["layer"].get<std::size_t>(), layer["max_abs"].get<float>(),
               layer["kv_head"].get<std::size_t>(), layer["dim"].get<std::size_t>(),
               layer["median_channel_max"].get<float>(), layer["max_abs_mean"].get<float>(),
               layer["outlier"].get<bool>()
                   ? fmt::format("  OUTLIER: {:.0f} times the median", layer["ratio"].get<float>())
                   : "");
  }
}

nlohmann::json MethodJson(const std::string& spec, const CacheGeometry& geometry, std::size_t tokens) {
  const Method method(ParseMethodSpec(spec), geometry);
  const PredictedBytes bytes = method.Predict(tokens);
  return {{"spec", method.spec().ToString()},
          {"saves_memory", method.saves_memory()},
          {"bytes_per_token_k", method.BytesPerToken(Side::kKey)},
          {"bytes_per_token_v", method.BytesPerToken(Side::kValue)},
          {"bytes_per_token", method.BytesPerToken(Side::kKey) + method.BytesPerToken(Side::kValue)},
          {"tokens", tokens},
          {"payload_bytes", bytes.payload},
          {"resident_bytes", bytes.resident}};
}

void PrintText(const nlohmann::json& document, bool tensors) {
  const auto& g = document["geometry"];
  fmt::print("{} ({}), {}\n", g["name"].get<std::string>(), g["architecture"].get<std::string>(),
             FormatBytes(g["file_bytes"].get<std::uint64_t>()));
  fmt::print("{}", NoticeLine(document["notice"].get<std::string>()));
  fmt::print("  {} layers, {} query heads, {} KV heads ({} a KV head), head_dim {}\n",
             g["n_layer"].get<std::size_t>(), g["n_q_head"].get<std::size_t>(),
             g["n_kv_head"].get<std::size_t>(), g["heads_per_kv"].get<std::size_t>(),
             g["head_dim"].get<std::size_t>());
  fmt::print("  embedding {}, feed-forward {}, vocabulary {}, context {} tokens, RoPE base {:g}\n",
             g["n_embd"].get<std::size_t>(), g["n_ff"].get<std::size_t>(),
             g["n_vocab"].get<std::size_t>(), g["ctx_limit"].get<std::size_t>(),
             g["rope_base"].get<double>());
  if (g["window"].get<std::size_t>() != 0) {
    fmt::print("  sliding window of {} tokens in {} layers\n", g["window"].get<std::size_t>(),
               g["n_local_layer"].get<std::size_t>());
  }
  fmt::print("  weights {}\n", g["weight_types"].get<std::string>());
  fmt::print("  key bias: {}\n",
             document["k_bias"].empty()
                 ? "none"
                 : fmt::format("in {} layers; expect outlier channels in K", document["k_bias"].size()));
  if (tensors) {
    for (const auto& tensor : document["tensors"]) {
      fmt::print("  {:<32} {:<5} {:<16} {} bytes\n", tensor["name"].get<std::string>(),
                 tensor["type"].get<std::string>(), tensor["dims"].dump(),
                 tensor["bytes"].get<std::uint64_t>());
    }
  }
  fmt::print("\nKV cache: bytes a token (K + V, all layers), and for {} tokens\n",
             document["methods"][0]["tokens"].get<std::size_t>());
  fmt::print("  {:<28} {:>12} {:>14} {:>14}\n", "method", "bytes/token", "payload", "resident");
  for (const auto& method : document["methods"]) {
    fmt::print("  {:<28} {:>12.0f} {:>14} {:>14}\n", method["spec"].get<std::string>(),
               method["bytes_per_token"].get<double>(),
               FormatBytes(method["payload_bytes"].get<std::uint64_t>()),
               FormatBytes(method["resident_bytes"].get<std::uint64_t>()));
  }
}

int Inspect(const InspectOptions& options) {
  const GgufFile file = OpenModel(options.common.ModelReference());
  const ModelConfig config = ReadModelConfig(file);
  const CacheGeometry geometry = ReadCacheGeometry(file, config);
  const std::size_t tokens = options.common.ctx == 0 ? config.ctx_limit : options.common.ctx;
  WarnBeyondModel(tokens, config.ctx_limit, options.common.quiet);
  std::vector<std::string> specs;
  if (options.has_kv) specs.push_back(options.common.kv);
  for (const CodecRecord* codec : Codecs()) {
    for (const PresetInfo& preset : codec->presets) specs.emplace_back(preset.name);
  }
  nlohmann::json methods = nlohmann::json::array();
  std::set<std::string> seen;
  for (const std::string& spec : specs) {
    nlohmann::json method = MethodJson(spec, geometry, tokens);
    if (seen.insert(method["spec"].get<std::string>()).second) methods.push_back(std::move(method));
  }
  nlohmann::json document = {{"path", file.path()},
                             {"notice", ModelNotice(file)},
                             {"geometry", GeometryJson(file, config)},
                             {"tensors", TensorsJson(file)},
                             {"k_bias", KeyBiasJson(file, config)},
                             {"methods", methods}};
  if (options.has_probe) document["probe"] = ProbeJson(options);
  if (options.common.json) {
    WriteJson(options.common, document);
  } else {
    PrintText(document, options.tensors);
    if (options.has_probe) PrintProbe(document["probe"]);
  }
  return 0;
}

}  // namespace

void AddInspectCommand(CLI::App& app, Dispatch& dispatch) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command =
      app.add_subcommand("inspect", "Geometry and weights of a model, and what its cache will cost");
  AddModelReference(*command, options->common);
  command->add_option("--ctx", options->common.ctx, "tokens to predict bytes for (0: the model's limit)")
      ->capture_default_str();
  CLI::Option* kv = command->add_option("--kv", options->common.kv, "also predict this method");
  CLI::Option* probe = command->add_option(
      "--probe", options->probe, "run this text and show the range of the keys of each layer");
  command->add_flag("--tensors", options->tensors, "list every tensor");
  AddJsonOption(*command, options->common);
  command->callback([options, kv, probe, &dispatch] {
    options->has_kv = kv->count() > 0;
    options->has_probe = probe->count() > 0;
    dispatch.run = [options] { return Inspect(*options); };
  });
}

}  // namespace kvant::cli

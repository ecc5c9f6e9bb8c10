// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// kvant inspect: what a model file holds and what its cache will cost, without loading the weights.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <set>

#include "apps/kvant/commands.h"
#include "apps/kvant/options.h"
#include "base/error.h"
#include "base/system.h"
#include "kv/registry.h"
#include "kv/resolved_method.h"
#include "llm/gguf.h"
#include "llm/model.h"

namespace kvant::cli {
namespace {

struct InspectOptions {
  CommonOptions common;
  bool has_kv = false;
  bool tensors = false;
};

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
  fmt::print("  {} layers, {} query heads, {} KV heads ({} a KV head), head_dim {}\n",
             g["n_layer"].get<std::size_t>(), g["n_q_head"].get<std::size_t>(),
             g["n_kv_head"].get<std::size_t>(), g["heads_per_kv"].get<std::size_t>(),
             g["head_dim"].get<std::size_t>());
  fmt::print("  embedding {}, feed-forward {}, vocabulary {}, context {} tokens, RoPE base {:g}\n",
             g["n_embd"].get<std::size_t>(), g["n_ff"].get<std::size_t>(),
             g["n_vocab"].get<std::size_t>(), g["ctx_limit"].get<std::size_t>(),
             g["rope_base"].get<double>());
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
  const GgufFile file = GgufFile::Open(ResolveModelPath(options.common.model));
  const ModelConfig config = ReadModelConfig(file);
  const CacheGeometry geometry = {.n_layer = config.n_layer,
                                  .n_kv_head = config.n_kv_head,
                                  .heads_per_kv = config.heads_per_kv(),
                                  .head_dim = config.head_dim};
  const std::size_t tokens = options.common.ctx == 0 ? config.ctx_limit : options.common.ctx;
  if (tokens > config.ctx_limit) {
    Fail(ErrorCode::kInvalidArgument, "--ctx {} is beyond this model's {} tokens", tokens,
         config.ctx_limit);
  }
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
  const nlohmann::json document = {{"path", file.path()},
                                   {"geometry", GeometryJson(file, config)},
                                   {"tensors", TensorsJson(file)},
                                   {"k_bias", KeyBiasJson(file, config)},
                                   {"methods", methods}};
  if (options.common.json) {
    WriteJson(options.common, document);
  } else {
    PrintText(document, options.tensors);
  }
  return 0;
}

}  // namespace

void AddInspectCommand(CLI::App& app, Dispatch& dispatch) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command =
      app.add_subcommand("inspect", "Geometry and weights of a model, and what its cache will cost");
  command->add_option("-m,--model", options->common.model, "GGUF file or name")
      ->capture_default_str();
  command->add_option("--ctx", options->common.ctx, "tokens to predict bytes for (0: the model's limit)")
      ->capture_default_str();
  CLI::Option* kv = command->add_option("--kv", options->common.kv, "also predict this method");
  command->add_flag("--tensors", options->tensors, "list every tensor");
  AddJsonOption(*command, options->common);
  command->callback([options, kv, &dispatch] {
    options->has_kv = kv->count() > 0;
    dispatch.run = [options] { return Inspect(*options); };
  });
}

}  // namespace kvant::cli

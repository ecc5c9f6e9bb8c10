// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// kvant calibrate: files that a method reads instead of learning from the text at hand. One kind so far:
// smooth, the sizes of keys and queries that smooth= weighs.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "apps/kvant/commands.h"
#include "apps/kvant/options.h"
#include "base/error.h"
#include "kv/resolved_method.h"
#include "llm/gguf.h"
#include "llm/model.h"
#include "llm/synthetic.h"

namespace kvant::cli {
namespace {

constexpr std::size_t kChunk = 512;

struct CalibrateOptions {
  CommonOptions common;
  std::string target, text_file, output;
  std::size_t tokens = 4096;
};

// The tokens to measure: the start of the text, as many as were asked for and the model takes.
std::vector<TokenId> TokensOf(const CalibrateOptions& options, const std::string& model_path) {
  const GgufFile file = OpenModel(model_path);
  const std::size_t ctx_limit = ReadModelConfig(file).ctx_limit;
  const std::string text = ReadInputFile(options.text_file);
  std::vector<TokenId> ids = Tokenizer::FromGguf(file).Encode(text, /*parse_special=*/false);
  if (ids.empty()) {
    Fail(ErrorCode::kInvalidArgument, "'{}' holds no text; give a few thousand words of prose",
         options.text_file);
  }
  ids.resize(std::min({ids.size(), options.tokens, ctx_limit}));
  return ids;
}

// The smallest and the largest lambda that the default smoothing takes from the profile, layer by layer.
nlohmann::json LayersJson(const KeyProfile& profile, const CacheGeometry& geometry) {
  const MethodSpec spec = ParseMethodSpec("turboquant_rvq");
  std::vector<float> version(2 * geometry.head_dim);
  nlohmann::json layers = nlohmann::json::array();
  for (std::size_t layer = 0; layer < profile.n_layer; ++layer) {
    const KeyTransform transform(spec.key_transform, geometry.head_dim, geometry.rope_of(layer));
    std::vector<float> lambdas;
    for (std::size_t kv_head = 0; kv_head < profile.n_kv_head; ++kv_head) {
      transform.Freeze({.rows = nullptr,
                        .n_rows = 0,
                        .position = 0,
                        .energy = nullptr,
                        .profile = &profile.heads[layer * profile.n_kv_head + kv_head]},
                       version.data());
      lambdas.insert(lambdas.end(), version.begin() + static_cast<std::ptrdiff_t>(geometry.head_dim),
                     version.end());
    }
    const auto [least, largest] = std::minmax_element(lambdas.begin(), lambdas.end());
    layers.push_back({{"layer", layer}, {"lambda_min", *least}, {"lambda_max", *largest}});
  }
  return layers;
}

void PrintText(const nlohmann::json& document) {
  fmt::print("{}", NoticeLine(document["notice"].get<std::string>()));
  fmt::print("Smoothing of keys over {} tokens (smallest and largest lambda of a channel)\n",
             document["tokens"].get<std::uint64_t>());
  for (const auto& layer : document["layers"]) {
    fmt::print("  layer {:>3}  {:>7.3f} to {:>7.3f}\n", layer["layer"].get<std::size_t>(),
               layer["lambda_min"].get<float>(), layer["lambda_max"].get<float>());
  }
  fmt::print("written to {}; use it with --kv '{}'\n", document["path"].get<std::string>(),
             document["spec"].get<std::string>());
}

int Calibrate(const CalibrateOptions& options) {
  if (options.target != "smooth") {
    Fail(ErrorCode::kInvalidArgument, "'{}' cannot be calibrated in this version; allowed: smooth",
         options.target);
  }
  if (options.output.find(',') != std::string::npos) {
    Fail(ErrorCode::kInvalidArgument,
         "'{}' has a ',' in it, which ends an item of --kv; choose a path without", options.output);
  }
  const std::string spec = ParseMethodSpec("turboquant_rvq,profile=" + options.output).ToString();
  CheckSaveTarget(options.output);
  EngineOptions engine_options = options.common.ToEngineOptions();
  const std::vector<TokenId> ids = TokensOf(options, engine_options.model_path);
  engine_options.kv_spec = KeyProfileMethod(ids.size());
  engine_options.ctx = ids.size();
  Engine engine(engine_options);
  WarnBeyondModel(engine.ctx(), engine.summary().ctx_limit, options.common.quiet);
  Session session = engine.NewSession();
  session.Evaluate(ids, std::min(kChunk, ids.size()), {});
  const KeyProfile profile = session.MeasureKeys();
  SaveKeyProfile(profile, options.output);
  const nlohmann::json document = {{"target", options.target},
                                   {"path", options.output},
                                   {"notice", engine.summary().notice},
                                   {"spec", spec},
                                   {"fingerprint", fmt::format("{:016x}", profile.fingerprint)},
                                   {"tokens", profile.n_tokens},
                                   {"layers", LayersJson(profile, engine.summary().cache)}};
  if (options.common.json) {
    WriteJson(options.common, document);
  } else {
    PrintText(document);
  }
  return 0;
}

}  // namespace

void AddCalibrateCommand(CLI::App& app, Dispatch& dispatch) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App* command = app.add_subcommand(
      "calibrate", "Measure a model on a text once, for methods that name the file (profile=FILE)");
  command->add_option("target", options->target, "smooth: sizes of keys and queries")->required();
  command->add_option("text", options->text_file, "file of the text to measure on")->required();
  command->add_option("-o,--output", options->output, "the file to write")->required();
  command->add_option("--tokens", options->tokens, "measure at most this many first tokens")
      ->check(CLI::Range(std::size_t{5}, std::size_t{1} << 20))
      ->capture_default_str();
  AddModelReference(*command, options->common);
  command->add_option("--threads", options->common.threads, "threads (0: one for each processor)")
      ->capture_default_str();
  command->add_option("--kernel", options->common.kernel, "auto, scalar, neon, avx2 or avx512")
      ->capture_default_str();
  command->add_option("--kv-limit", options->common.kv_limit,
                      "hard limit of the KV cache in bytes, e.g. 512M (default: free memory)");
  AddJsonOption(*command, options->common);
  command->callback([options, &dispatch] { dispatch.run = [options] { return Calibrate(*options); }; });
}

}  // namespace kvant::cli

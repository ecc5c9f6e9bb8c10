// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// kvant methods: everything the method grammar knows, from the registry.
#include <CLI/CLI.hpp>
#include <memory>

#include "apps/kvant/codebook_tables.h"
#include "apps/kvant/commands.h"
#include "apps/kvant/distortion.h"
#include "apps/kvant/options.h"
#include "base/error.h"
#include "kv/registry.h"
#include "kv/spec.h"

namespace kvant::cli {
namespace {

struct MethodsOptions {
  CommonOptions common;
  std::size_t head_dim = 128;
  bool head_dim_given = false;
  bool codebooks = false;
  bool distortion = false;
  std::size_t vectors = 20000;
};

// Bytes of one token of one KV head with default options, whole blocks.
double BytesPerToken(const CodecRecord& codec, Side side, std::size_t head_dim) {
  const BlockGeometry geometry = codec.geometry(
      side, head_dim,
      *BindCodec(codec, std::string_view(), {.side = side, .layer = 0, .head_dim = head_dim}));
  return static_cast<double>(geometry.bytes) / static_cast<double>(kBlockTokens);
}

nlohmann::json Describe(const CodecRecord& codec, std::size_t head_dim) {
  nlohmann::json kernels = nlohmann::json::array();
  for (const KernelSet& set : codec.kernels()) {
    kernels.push_back({{"name", IsaName(set.isa)},
                       {"exactness", set.exactness.ToString()},
                       {"supported", IsaSupported(set.isa)}});
  }
  nlohmann::json options = nlohmann::json::array();
  for (const OptionInfo& option : codec.options) {
    options.push_back({{"name", option.name},
                       {"default", option.default_value},
                       {"allowed", option.allowed},
                       {"meaning", option.meaning}});
  }
  nlohmann::json presets = nlohmann::json::array();
  for (const PresetInfo& preset : codec.presets) {
    presets.push_back(
        {{"name", preset.name}, {"expansion", preset.expansion}, {"meaning", preset.meaning}});
  }
  return {{"name", codec.name},
          {"summary", codec.summary},
          {"paper", codec.paper},
          {"storage", StorageKindName(codec.storage)},
          {"kernels", kernels},
          {"bytes_per_token_k", BytesPerToken(codec, Side::kKey, head_dim)},
          {"bytes_per_token_v", BytesPerToken(codec, Side::kValue, head_dim)},
          {"options", options},
          {"presets", presets}};
}

void PrintText(const nlohmann::json& document) {
  fmt::print("Methods for --kv (grammar: docs/method-grammar.md)\n\n");
  for (const auto& codec : document["codecs"]) {
    std::string kernels;
    for (const auto& kernel : codec["kernels"]) {
      kernels += fmt::format("{}{} ({}{})", kernels.empty() ? "" : ", ",
                             kernel["name"].get<std::string>(),
                             kernel["exactness"].get<std::string>(),
                             kernel["supported"].get<bool>() ? "" : ", not on this processor");
    }
    fmt::print("{}  {}\n", codec["name"].get<std::string>(), codec["summary"].get<std::string>());
    fmt::print("  storage {}; {} + {} bytes a token and KV head (K + V) at head_dim {}\n",
               codec["storage"].get<std::string>(), codec["bytes_per_token_k"].get<double>(),
               codec["bytes_per_token_v"].get<double>(), document["head_dim"].get<std::size_t>());
    fmt::print("  kernels {}\n", kernels);
    for (const auto& option : codec["options"]) {
      fmt::print("  option {}={} ({}): {}\n", option["name"].get<std::string>(),
                 option["default"].get<std::string>(), option["allowed"].get<std::string>(),
                 option["meaning"].get<std::string>());
    }
    for (const auto& preset : codec["presets"]) {
      fmt::print("  preset {} = {}: {}\n", preset["name"].get<std::string>(),
                 preset["expansion"].get<std::string>(), preset["meaning"].get<std::string>());
    }
    fmt::print("  source {}\n\n", codec["paper"].get<std::string>());
  }
  fmt::print("Keys: sink=0..64 first tokens kept exact; window=N recent tokens kept exact, a multiple "
             "of 64;\n      exact=fp16|bf16 the 16-bit type of exact rows; layers=A-B+C:k=CODEC:v=CODEC;\n"
             "      k_mean=off|block0|refreeze:N|rope, smooth=off|balanced|balanced_pair|sigma|max of packed "
             "keys;\n      profile=FILE from 'kvant calibrate smooth' for smooth=;\n      tail=exact|packed the open block; read=codes|dequantize how keys are attended\n"
             "Policies for evict=: {}\n",
             PolicyNames());
}

int Methods(const MethodsOptions& options) {
  for (const CodecRecord* codec : Codecs()) {
    if (const std::string reason = codec->refuse_head_dim(options.head_dim); !reason.empty()) {
      Fail(ErrorCode::kInvalidArgument, "--head-dim {}: {}", options.head_dim, reason);
    }
  }
  nlohmann::json codecs = nlohmann::json::array();
  for (const CodecRecord* codec : Codecs()) codecs.push_back(Describe(*codec, options.head_dim));
  nlohmann::json document = {
      {"head_dim", options.head_dim}, {"codecs", codecs}, {"policies", nlohmann::json::array()}};
  if (options.codebooks) document["codebooks"] = CodebookRows(options.head_dim);
  if (options.distortion) {
    const std::vector<std::size_t> head_dims = options.head_dim_given
                                                   ? std::vector{options.head_dim}
                                                   : std::vector<std::size_t>{64, 128, 256};
    document["distortion"] = DistortionRows(head_dims, options.vectors, options.common.seed);
  }
  if (options.common.json) {
    WriteJson(options.common, document);
    return 0;
  }
  if (options.codebooks) fmt::print("{}", CodebookText(document["codebooks"]));
  if (options.distortion) fmt::print("{}", DistortionText(document["distortion"]));
  if (!options.codebooks && !options.distortion) PrintText(document);
  return 0;
}

}  // namespace

void AddMethodsCommand(CLI::App& app, Dispatch& dispatch) {
  auto options = std::make_shared<MethodsOptions>();
  CLI::App* command =
      app.add_subcommand("methods", "Presets, codecs, options, kernels and bytes of --kv");
  CLI::Option* head_dim =
      command->add_option("--head-dim", options->head_dim, "for bytes and tables")
          ->capture_default_str();
  command->add_flag("--codebooks", options->codebooks, "the tables of the scalar codecs");
  command->add_flag(
      "--distortion", options->distortion,
      "error of the scalar codecs on random vectors, beside theory (head_dim 64, 128, 256 "
      "unless --head-dim is given)");
  command->add_option("--vectors", options->vectors, "for --distortion")
      ->check(CLI::Range(std::size_t{64}, std::size_t{10'000'000}))
      ->capture_default_str();
  command->add_option("--seed", options->common.seed, "of the random vectors")
      ->capture_default_str();
  AddJsonOption(*command, options->common);
  command->callback([options, head_dim, &dispatch] {
    options->head_dim_given = head_dim->count() > 0;
    dispatch.run = [options] { return Methods(*options); };
  });
}

}  // namespace kvant::cli

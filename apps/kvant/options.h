// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Options that several commands share, and where their JSON goes.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "engine/engine.h"

namespace CLI {
class App;
}

namespace kvant::cli {

/// -m --geometry --kv --threads --kernel --prefill --ctx --seed --device --kv-limit --exact --quiet
/// --json [FILE]
struct CommonOptions {
  std::string model = "smollm2-135m";
  std::string geometry;  // fields of a synthetic model
  std::string kv = "turboquant_rvq";
  std::string kernel = "auto";
  std::string prefill = "auto";
  std::string device = "cpu";
  std::string kv_limit;  // bytes, with an optional suffix K, M, G (powers of 1024)
  std::size_t threads = 0;
  std::size_t ctx = 0;
  std::uint64_t seed = 42;
  bool exact = false;
  bool quiet = false;
  bool json = false;
  std::string json_path;  // empty: stdout

  /// The model as the engine takes it: a GGUF path as it is, the cached file of a known name, or a synthetic
  /// model with all its fields and its seed. Throws Error(kNotFound) that says how to fetch a model, and
  /// kInvalidArgument for a bad geometry.
  std::string ModelReference() const;
  /// The engine options these mean. Resolves the model name; throws Error for a bad value.
  EngineOptions ToEngineOptions() const;
};

/// -m and --geometry
void AddModelReference(CLI::App& command, CommonOptions& options);
void AddModelOptions(CLI::App& command, CommonOptions& options);  // all of the above but --json
void AddJsonOption(CLI::App& command, CommonOptions& options);

/// The line that says what the model's notice says, for people; empty without one. ModelSummary::notice and
/// ModelNotice give it.
std::string NoticeLine(std::string_view notice);
/// The per-user cache folder of models: $XDG_CACHE_HOME/kvant/models or ~/.cache/kvant/models.
std::string ModelCacheFolder();
/// "512M" -> bytes. Throws Error(kInvalidArgument).
std::uint64_t ParseByteSize(const std::string& text);
/// The bytes of a file that an option names. Throws Error(kNotFound) where it cannot be read.
std::string ReadInputFile(const std::string& path);
/// One sentence on stderr where `ctx` tokens are more than the model was made for, and nothing is said
/// with --quiet.
void WarnBeyondModel(std::size_t ctx, std::size_t ctx_limit, bool quiet);
/// Writes the object to --json's FILE or to stdout, with a newline.
void WriteJson(const CommonOptions& options, const nlohmann::json& value);

}  // namespace kvant::cli

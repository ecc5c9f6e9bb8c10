// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "apps/kvant/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "apps/kvant/model_catalog.h"
#include "base/error.h"
#include "llm/synthetic.h"

namespace kvant::cli {
namespace {

constexpr std::string_view kDefaultModel = "smollm2-135m";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool IsFile(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// A GGUF path as it is, or the cached file of a known name (KVANT_MODEL overrides the default one).
std::string ResolveModelPath(const std::string& model) {
  if (model == kDefaultModel) {
    if (const std::string path = Environment("KVANT_MODEL"); !path.empty()) return path;
  }
  const bool looks_like_path = model.find('/') != std::string::npos || model.ends_with(".gguf");
  if (looks_like_path || IsFile(model)) return model;
  const std::string cached = ModelCacheFolder() + "/" + model + ".gguf";
  if (IsFile(cached)) return cached;
  Fail(ErrorCode::kNotFound,
       "model '{}' is neither a file nor in {}; run 'kvant fetch' for the names that can be fetched",
       model, ModelCacheFolder());
}

}  // namespace

std::string CommonOptions::ModelReference() const {
  if (IsSynthetic(model)) return AddSyntheticFields(model, geometry, seed);
  if (!geometry.empty()) {
    Fail(ErrorCode::kInvalidArgument,
         "--geometry shapes a synthetic model and '{}' is none; give -m synthetic:NAME, where NAME is one of {}",
         model, SyntheticNames());
  }
  return ResolveModelPath(model);
}

EngineOptions CommonOptions::ToEngineOptions() const {
  if (device != "cpu") {
    Fail(device == "cuda" ? ErrorCode::kUnsupported : ErrorCode::kInvalidArgument,
         "device '{}' does not run models in this version; use --device cpu", device);
  }
  EngineOptions engine;
  engine.model_path = ModelReference();
  engine.kv_spec = kv;
  engine.kernel = kernel;
  engine.n_threads = threads;
  engine.ctx = ctx;
  engine.kv_limit_bytes = kv_limit.empty() ? 0 : ParseByteSize(kv_limit);
  engine.prefill = prefill;
  engine.exact = exact;
  return engine;
}

void AddModelReference(CLI::App& command, CommonOptions& options) {
  command
      .add_option("-m,--model", options.model,
                  "GGUF file, the name of a fetched model, or synthetic:NAME (random weights for speed and "
                  "memory; NAME: " +
                      SyntheticNames() + ")")
      ->capture_default_str();
  command.add_option("--geometry", options.geometry,
                     "shape of a synthetic model, over its name's: n_layer=4,n_embd=256,...");
}

void AddModelOptions(CLI::App& command, CommonOptions& options) {
  AddModelReference(command, options);
  command.add_option("--kv", options.kv, "how the KV cache is kept: a method, see 'kvant methods'")
      ->capture_default_str();
  command.add_option("--threads", options.threads, "threads (0: one for each processor)")
      ->capture_default_str();
  command.add_option("--kernel", options.kernel, "auto, scalar, neon, avx2 or avx512")
      ->capture_default_str();
  command.add_option("--prefill", options.prefill,
                     "arithmetic of weight products of many tokens: auto, f32 or bf16 (faster, rounds)")
      ->capture_default_str();
  command.add_option("--ctx", options.ctx, "tokens a session may hold (0: the model's limit)")
      ->capture_default_str();
  command.add_option("--seed", options.seed, "seed of everything random")->capture_default_str();
  command.add_option("--device", options.device, "cpu")->capture_default_str();
  command.add_option("--kv-limit", options.kv_limit,
                     "hard limit of the KV cache in bytes, e.g. 512M (default: free memory)");
  command.add_flag("--exact", options.exact,
                   "fixed-order f32 arithmetic for every codec: same bits for any chunk size");
  command.add_flag("--quiet", options.quiet, "no progress and no closing lines on stderr");
}

void AddJsonOption(CLI::App& command, CommonOptions& options) {
  command
      .add_option_function<std::vector<std::string>>(
          "--json",
          [&options](const std::vector<std::string>& values) {
            options.json = true;
            options.json_path = values.empty() ? "" : values[0];
          },
          "one JSON object to FILE, or to stdout and nothing else there")
      ->expected(0, 1)
      ->type_name("[FILE]");
}

std::string ModelCacheFolder() {
  const std::string cache = Environment("XDG_CACHE_HOME");
  if (!cache.empty()) return cache + "/kvant/models";
  const std::string home = Environment("HOME");
  if (home.empty()) {
    Fail(ErrorCode::kNotFound,
         "neither XDG_CACHE_HOME nor HOME is set, so there is no cache folder; set one of them or name "
         "a GGUF file with -m");
  }
  return home + "/.cache/kvant/models";
}

std::string NoticeLine(std::string_view notice) {
  return notice.empty() ? std::string() : fmt::format("{}\n", notice);
}

std::uint64_t ParseByteSize(const std::string& text) {
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  std::string_view unit(result.ptr, static_cast<std::size_t>(end - result.ptr));
  unsigned shift = 0;
  if (unit == "K") shift = 10;
  if (unit == "M") shift = 20;
  if (unit == "G") shift = 30;
  const bool known = unit.empty() || shift != 0;
  if (result.ec != std::errc() || !known || number == 0 || number > (UINT64_MAX >> 1 >> shift)) {
    Fail(ErrorCode::kInvalidArgument,
         "'{}' is not a size; write a whole number of bytes above 0, with K, M or G for powers of 1024",
         text);
  }
  return number << shift;
}

std::string ReadInputFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || (!file && !file.eof())) {
    Fail(ErrorCode::kNotFound, "cannot read '{}'; check the path", path);
  }
  return text;
}

void WarnBeyondModel(std::size_t ctx, std::size_t ctx_limit, bool quiet) {
  if (quiet || ctx <= ctx_limit) return;
  fmt::print(stderr,
             "kvant: a context of {} tokens is beyond the {} that this model was made for; what it says there "
             "may make no sense\n",
             ctx, ctx_limit);
}

void WriteJson(const CommonOptions& options, const nlohmann::json& value) {
  const std::string text =
      value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (options.json_path.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    return;
  }
  std::ofstream file(options.json_path, std::ios::binary);
  file << text;
  file.close();
  if (!file) {
    Fail(ErrorCode::kNotFound, "cannot write '{}'; check that its folder exists and is writable",
         options.json_path);
  }
}

}  // namespace kvant::cli

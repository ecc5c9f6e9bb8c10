// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/micro/options.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/thread_pool.h"

namespace kvant::micro {
namespace {

// As typed; the defaults are those of the acceptance table: SmolLM2-135M, and a wide shape whose fp16 cache
// at the largest context is about as large.
struct Typed {
  std::vector<std::string> kernels = {"auto"};
  std::vector<std::string> specs = {"fp16", "turboquant_rvq"};
  std::vector<std::string> shapes = {"d64g3h3l30", "d128g4h8l6"};
  std::vector<std::size_t> contexts = {512, 2048, 8192, 32768};
  std::vector<std::size_t> threads = {1, DefaultThreadCount()};
  std::vector<std::size_t> head_dims = {64, 128};
  std::vector<std::size_t> heads_per_kv = {1, 3, 4, 8};
  bool variants = false;
  bool all_samples = false;
};

void AddOptions(CLI::App& app, Typed& typed) {
  app.add_option("--kernel", typed.kernels, "Instruction sets: auto (the fastest), all, or names")
      ->delimiter(',');
  app.add_option("--kv", typed.specs, "Method of attend rows; give it once for each (fp16 is the baseline)")
      ->allow_extra_args(false);
  app.add_option("--shape", typed.shapes,
                 "Shapes of attend rows: d<head_dim>g<query heads for each KV head>h<KV heads>l<layers>")
      ->delimiter(',');
  app.add_option("--ctx", typed.contexts, "Cached tokens of attend rows")->delimiter(',');
  app.add_option("--threads", typed.threads, "Threads of read and attend rows")->delimiter(',');
  app.add_option("--head-dim", typed.head_dims, "head_dim of kernel rows")->delimiter(',');
  app.add_option("--heads-per-kv", typed.heads_per_kv, "Queries of score and accumulate rows")
      ->delimiter(',');
  for (CLI::Option* option : app.get_options()) option->capture_default_str();
  app.add_flag("--variants", typed.variants, "Also measure the variants that codecs name");
  app.add_flag("--all-samples", typed.all_samples, "Show every repetition");
}

template <typename T>
std::vector<T> SortedUnique(std::vector<T> list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

std::vector<std::size_t> Counts(const char* option, const std::vector<std::size_t>& list) {
  if (std::find(list.begin(), list.end(), std::size_t{0}) != list.end())
    Fail(ErrorCode::kInvalidArgument, "{} has a 0 in its list; give numbers from 1 on", option);
  return SortedUnique(list);
}

std::vector<Isa> ParseIsas(const std::vector<std::string>& names) {
  std::vector<Isa> isas;
  for (const std::string& name : names) {
    if (name == "all") {
      isas.insert(isas.end(), SupportedIsas().begin(), SupportedIsas().end());
    } else {
      isas.push_back(ResolveIsa(name));
    }
  }
  return SortedUnique(isas);
}

}  // namespace

Shape ParseShape(const std::string& text) {
  CacheGeometry g;
  int end = 0;
  const int n_read = std::sscanf(text.c_str(), "d%zug%zuh%zul%zu%n", &g.head_dim, &g.heads_per_kv,
                                 &g.n_kv_head, &g.n_layer, &end);
  if (n_read != 4 || static_cast<std::size_t>(end) != text.size() ||
      g.head_dim * g.heads_per_kv * g.n_kv_head * g.n_layer == 0) {
    Fail(ErrorCode::kInvalidArgument,
         "'{}' is no shape; write d<head_dim>g<query heads for each KV head>h<KV heads>l<layers>, for "
         "example d64g3h3l30",
         text);
  }
  RopeGeometry rope;
  for (std::size_t pair = 0; pair < g.head_dim / 2; ++pair) {
    rope.frequency.push_back(
        std::pow(1e4, -2.0 * static_cast<double>(pair) / static_cast<double>(g.head_dim)));
  }
  g.rope = std::make_shared<const RopeGeometry>(rope);
  return {text, g};
}

Options ParseOptions(int argc, char** argv) {
  Typed typed;
  CLI::App app("kvant_micro");
  AddOptions(app, typed);
  app.parse(argc, argv);
  Options options;
  options.isas = ParseIsas(typed.kernels);
  for (const std::string& spec : typed.specs) {
    if (std::find(options.specs.begin(), options.specs.end(), spec) == options.specs.end())
      options.specs.push_back(spec);
  }
  for (const std::string& shape : typed.shapes) options.shapes.push_back(ParseShape(shape));
  options.contexts = Counts("--ctx", typed.contexts);
  options.threads = Counts("--threads", typed.threads);
  options.head_dims = Counts("--head-dim", typed.head_dims);
  options.heads_per_kv = Counts("--heads-per-kv", typed.heads_per_kv);
  options.variants = typed.variants;
  options.all_samples = typed.all_samples;
  return options;
}

std::string OptionsHelp() {
  Typed typed;
  CLI::App app("Micro benchmarks of kvant: kernels and whole attention on random rows");
  AddOptions(app, typed);
  return app.help();
}

}  // namespace kvant::micro

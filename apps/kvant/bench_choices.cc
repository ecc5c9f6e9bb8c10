// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "apps/kvant/bench_choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "kv/spec.h"

namespace kvant::cli {
namespace {

std::vector<std::string> SplitSpecs(const std::string& text) {
  std::vector<std::string> specs;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ';');) {
    const std::size_t begin = part.find_first_not_of(' ');
    if (begin == std::string::npos) continue;
    specs.push_back(part.substr(begin, part.find_last_not_of(' ') - begin + 1));
  }
  return specs;
}

std::vector<std::string> Canonical(const std::vector<std::string>& specs) {
  std::vector<std::string> canonical;
  for (const std::string& spec : specs) canonical.push_back(ParseMethodSpec(spec).ToString());
  return canonical;
}

// What --arms and --kv ask for.
std::vector<std::string> ExtraSpecs(const BenchOptions& options) {
  std::vector<std::string> specs = SplitSpecs(options.arms);
  if (options.has_kv) specs.push_back(options.common.kv);
  return Canonical(specs);
}

std::string Quote(const std::string& text) {
  const bool plain =
      !text.empty() && text.find_first_of(" ;'\"\\$&|<>*?()`~#!") == std::string::npos;
  if (plain) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// For --arms of the command that repeats a run. In mode "published" the protocol names its arms, so
// only what was asked for is said; it was asked for in addition where it came from --kv alone.
std::vector<std::string> ChosenSpecs(const BenchOptions& options,
                                     const bench::BenchConfig& config) {
  std::vector<std::string> specs;
  if (config.protocol.published) {
    return options.arms.empty() ? specs : ExtraSpecs(options);
  }
  for (const bench::Arm& arm : config.arms) {
    if (!arm.is_baseline) specs.push_back(arm.spec);
  }
  // Nothing but the baseline is a choice too, where the protocol has methods.
  if (specs.empty() && config.protocol.arms.size() > 1) specs.push_back(config.arms[0].spec);
  return specs;
}

}  // namespace

std::vector<bench::Arm> ChooseArms(const BenchOptions& options, bench::Protocol& protocol) {
  const std::vector<std::string> extra = ExtraSpecs(options);
  std::vector<std::string> specs = Canonical(protocol.arms);
  if (protocol.published) {
    return bench::MakePublishedArms(*protocol.published, specs, extra, !options.arms.empty());
  }
  if (!options.arms.empty()) specs.resize(1);  // the baseline stays
  for (const std::string& spec : extra) {
    if (std::find(specs.begin(), specs.end(), spec) == specs.end()) specs.push_back(spec);
  }
  return bench::MakeArms(specs);
}

std::vector<std::size_t> ChooseLengths(const BenchOptions& options, const bench::Protocol& protocol,
                                       std::size_t max_length, bench::ProgressSink& progress) {
  std::vector<std::size_t> lengths = options.lengths;
  const bool asked = !lengths.empty();
  if (!asked) lengths = options.full ? protocol.full_lengths : protocol.lengths;
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  const auto end = std::upper_bound(lengths.begin(), lengths.end(), max_length);
  if ((asked && end != lengths.end()) || end == lengths.begin()) {
    Fail(ErrorCode::kInvalidArgument,
         "a prompt of {} tokens was asked for; model, --ctx and text allow {} at most beside {} "
         "decode steps",
         asked ? lengths.back() : lengths.front(), max_length, protocol.decode_steps);
  }
  if (end != lengths.end()) {
    progress.Note(
        fmt::format("lengths above {} tokens do not fit this model and are left out", max_length));
    lengths.erase(end, lengths.end());
  }
  return lengths;
}

std::string ReproduceCommand(const BenchOptions& options, const bench::BenchConfig& config,
                             const bench::Measurements& measured, std::size_t n_threads) {
  std::string command = fmt::format("kvant bench -m {} --protocol {}", Quote(options.common.model),
                                    Quote(options.protocol));
  std::string lengths, arms;
  for (const std::size_t length : measured.lengths) {
    lengths += fmt::format("{}{}", lengths.empty() ? "" : ",", length);
  }
  for (const std::string& spec : ChosenSpecs(options, config)) {
    arms += (arms.empty() ? "" : ";") + spec;
  }
  if (!options.common.geometry.empty()) command += " --geometry " + Quote(options.common.geometry);
  command += fmt::format(" --lengths {} --rounds {}", lengths, measured.rounds);
  if (!arms.empty()) command += " --arms " + Quote(arms);
  if (config.protocol.published && arms.empty() && options.has_kv) {
    command += " --kv " + Quote(options.common.kv);
  }
  command += fmt::format(" --threads {} --kernel {} --prefill {} --seed {}", n_threads,
                         options.common.kernel, options.common.prefill, options.common.seed);
  if (options.common.ctx != 0) command += fmt::format(" --ctx {}", options.common.ctx);
  if (!options.common.kv_limit.empty()) command += " --kv-limit " + Quote(options.common.kv_limit);
  if (options.common.exact) command += " --exact";
  return command;
}

}  // namespace kvant::cli

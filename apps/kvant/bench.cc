// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// kvant bench: runs a protocol of bench/harness on a model, writes the JSON result and the report.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "apps/kvant/commands.h"
#include "apps/kvant/interrupt.h"
#include "apps/kvant/options.h"
#include "base/error.h"
#include "bench/harness/engine_runner.h"
#include "bench/harness/environment.h"
#include "bench/harness/linux_probe.h"
#include "bench/harness/process_memory.h"
#include "bench/harness/progress.h"
#include "bench/harness/render_html.h"
#include "bench/harness/render_text.h"
#include "bench/harness/result.h"
#include "bench/harness/schedule.h"
#include "kv/spec.h"

namespace kvant::cli {
namespace {

using nlohmann::json;

struct BenchOptions {
  CommonOptions common;
  std::string protocol = "honest";
  std::vector<std::size_t> lengths;
  std::string arms;
  std::size_t rounds = 0;
  bool full = false;
  std::string out;
  std::string render;
  // A process that this command starts for itself: one arm, one length, its memory as JSON.
  std::string memory_of;
  std::size_t memory_length = 0, memory_steps = 0;
  bool has_kv = false;
};

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

// Canonical specs: the protocol's, then those of --arms and --kv that are not there yet. A spec
// that does not parse is refused here, before anything is loaded.
std::vector<std::string> ChooseSpecs(const BenchOptions& options, const bench::Protocol& protocol) {
  std::vector<std::string> wanted = protocol.arms;
  if (!options.arms.empty()) wanted.resize(1);  // the baseline stays
  for (const std::string& spec : SplitSpecs(options.arms)) wanted.push_back(spec);
  if (options.has_kv) wanted.push_back(options.common.kv);
  std::vector<std::string> specs;
  for (const std::string& spec : wanted) {
    const std::string canonical = ParseMethodSpec(spec).ToString();
    if (std::find(specs.begin(), specs.end(), canonical) == specs.end()) specs.push_back(canonical);
  }
  return specs;
}

// Lengths that were asked for must fit; those of the protocol are taken as far as they do.
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
         "decode "
         "steps",
         asked ? lengths.back() : lengths.front(), max_length, protocol.decode_steps);
  }
  if (end != lengths.end()) {
    progress.Note(
        fmt::format("lengths above {} tokens do not fit this model and are left out", max_length));
    lengths.erase(end, lengths.end());
  }
  return lengths;
}

std::string Quote(const std::string& text) {
  const bool plain =
      !text.empty() && text.find_first_of(" ;'\"\\$&|<>*?()`~#!") == std::string::npos;
  if (plain) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// The command that repeats this run, everything that was chosen for the user written out.
std::string ReproduceCommand(const BenchOptions& options, const bench::BenchConfig& config,
                             const bench::Measurements& measured, std::size_t n_threads) {
  std::string command = fmt::format("kvant bench -m {} --protocol {}", Quote(options.common.model),
                                    Quote(options.protocol));
  std::string lengths, arms;
  for (const std::size_t length : measured.lengths) {
    lengths += fmt::format("{}{}", lengths.empty() ? "" : ",", length);
  }
  for (std::size_t i = 2; i < config.arms.size(); ++i) {
    arms += (arms.empty() ? "" : ";") + config.arms[i].spec;
  }
  command += fmt::format(" --lengths {} --rounds {}", lengths, measured.rounds);
  if (!arms.empty()) command += " --arms " + Quote(arms);
  command += fmt::format(" --threads {} --kernel {} --seed {}", n_threads, options.common.kernel,
                         options.common.seed);
  if (options.common.ctx != 0) command += fmt::format(" --ctx {}", options.common.ctx);
  if (!options.common.kv_limit.empty()) command += " --kv-limit " + Quote(options.common.kv_limit);
  if (options.common.exact) command += " --exact";
  return command;
}

bench::MemoryReport MeasureInProcess(const BenchOptions& options, const bench::Arm& arm,
                                     std::size_t length, std::size_t steps) {
  const CommonOptions& common = options.common;
  std::vector<std::string> argv = {"/proc/self/exe",
                                   "bench",
                                   "-m",
                                   ResolveModelPath(common.model),
                                   "--memory-of",
                                   arm.spec,
                                   "--memory-length",
                                   std::to_string(length),
                                   "--memory-steps",
                                   std::to_string(steps),
                                   "--threads",
                                   std::to_string(common.threads),
                                   "--kernel",
                                   common.kernel};
  if (!common.kv_limit.empty()) argv.insert(argv.end(), {"--kv-limit", common.kv_limit});
  if (common.exact) argv.push_back("--exact");
  const std::string text = bench::CaptureProcess(argv, &InterruptFlag());
  const json report = json::parse(text, nullptr, /*allow_exceptions=*/false);
  return bench::MemoryReportFromJson(report);
}

int RunMemoryProcess(const BenchOptions& options) {
  EngineOptions engine = options.common.ToEngineOptions();
  engine.kv_spec = options.memory_of;
  const bench::MemoryReport report =
      bench::MeasureMemoryHere(engine, options.memory_length, options.memory_steps);
  fmt::print("{}\n", bench::MemoryReportToJson(report).dump());
  return 0;
}

void WriteFile(const std::filesystem::path& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  file.close();
  if (!file) {
    Fail(ErrorCode::kNotFound, "{} cannot be written; give a folder that can with --out",
         path.string());
  }
}

// The folder of the result. Made before the run, since minutes of measuring must not end in
// "permission denied"; taken away again where a run failed and left it empty.
class OutFolder {
 public:
  explicit OutFolder(const BenchOptions& options)
      : path_(options.out.empty() ? std::filesystem::path("bench-out") / bench::UtcStamp()
                                  : std::filesystem::path(options.out)),
        is_default_(options.out.empty()) {
    std::error_code error;
    std::filesystem::create_directories(path_, error);
    if (error || access(path_.c_str(), W_OK) != 0) {
      Fail(ErrorCode::kNotFound, "the folder {} cannot be written; give another with --out",
           path_.string());
    }
  }
  ~OutFolder() {
    std::error_code ignored;
    // Only empty folders can be removed.
    std::filesystem::remove(path_, ignored);
    if (is_default_) std::filesystem::remove(path_.parent_path(), ignored);
  }
  OutFolder(const OutFolder&) = delete;
  OutFolder& operator=(const OutFolder&) = delete;
  std::filesystem::path File(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
  bool is_default_;
};

void Show(const BenchOptions& options, const json& result) {
  if (options.common.json) WriteJson(options.common, result);
  // With JSON on stdout nothing else may be there.
  if (options.common.json && options.common.json_path.empty()) return;
  fmt::print("{}", bench::RenderText(result));
}

int RenderStored(const BenchOptions& options) {
  std::ifstream file(options.render, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  const json result = json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  if (!file || result.is_discarded()) {
    Fail(ErrorCode::kCorruptData, "{} is not a JSON file that can be read; give a result.json",
         options.render);
  }
  if (const auto problems = bench::ValidateResult(result); !problems.empty()) {
    Fail(ErrorCode::kCorruptData, "{} is not a result of kvant bench: {}", options.render,
         problems.front());
  }
  std::filesystem::path report =
      std::filesystem::path(options.render).parent_path() / "report.html";
  std::unique_ptr<OutFolder> folder;
  if (!options.out.empty()) {
    folder = std::make_unique<OutFolder>(options);
    report = folder->File("report.html");
  }
  WriteFile(report, bench::RenderHtml(result));
  Show(options, result);
  fmt::print(stderr, "report: {}\n", report.string());
  return result.at("verdict").at("status") == "not a result" ? 1 : 0;
}

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class BenchCommand {
 public:
  explicit BenchCommand(const BenchOptions& options) : options_(options) {}

  int Run() {
    config_.protocol = bench::LoadProtocol(options_.protocol);
    config_.arms = bench::MakeArms(ChooseSpecs(options_, config_.protocol));
    config_.seed = options_.common.seed;
    const EngineOptions engine = options_.common.ToEngineOptions();
    const OutFolder folder(options_);
    MakeProgress();
    bench::EngineRunner runner(engine, &InterruptFlag());
    runner.Prepare(config_.arms[0]);
    ChooseSize(runner);
    const bench::ReadBandwidth bandwidth = bench::MeasureReadBandwidth(runner.n_threads());
    bench::LinuxProbe probe(runner.n_threads());
    bench::ContentionMonitor contention(probe, config_.protocol.contention);
    const bench::Measurements measured = Measure(runner, contention);

    bench::ResultParts parts;
    parts.env = bench::DescribeEnvironment(bandwidth);
    parts.build = bench::DescribeBuild();
    parts.model = runner.DescribeModel();
    parts.contention = contention.ToJson();
    parts.contention_verdict = contention.Judge();
    parts.n_threads = runner.n_threads();
    parts.command = ReproduceCommand(options_, config_, measured, parts.n_threads);
    const json result = bench::BuildResult(config_, measured, parts);
    return Finish(folder, result);
  }

 private:
  void MakeProgress() {
    if (options_.common.quiet) {
      progress_ = std::make_unique<bench::SilentProgress>();
    } else {
      progress_ = std::make_unique<bench::StreamProgress>(stderr, isatty(STDERR_FILENO) == 1);
    }
  }

  void ChooseSize(const bench::EngineRunner& runner) {
    const bench::Protocol& protocol = config_.protocol;
    config_.lengths =
        ChooseLengths(options_, protocol, runner.MaxLength(protocol.decode_steps), *progress_);
    const std::size_t wanted = options_.rounds != 0 ? options_.rounds
                               : options_.full      ? protocol.full_rounds
                                                    : protocol.rounds;
    config_.rounds = wanted;
    // What the user chose is run whatever it takes.
    config_.fit_to_budget = options_.lengths.empty() && options_.rounds == 0 && !options_.full &&
                            config_.arms.size() == protocol.arms.size() + 1;
    if (bench::BalancedRounds(config_.arms.size(), wanted) != wanted) {
      progress_->Note(fmt::format(
          "{} rounds instead of {}: the order of {} arms is balanced only then",
          bench::BalancedRounds(config_.arms.size(), wanted), wanted, config_.arms.size()));
    }
  }

  bench::Measurements Measure(bench::EngineRunner& runner, bench::ContentionMonitor& contention) {
    bench::BenchHooks hooks;
    hooks.runner = &runner;
    hooks.contention = &contention;
    hooks.progress = progress_.get();
    hooks.memory = [this](const bench::Arm& arm, std::size_t length) {
      return MeasureInProcess(options_, arm, length, config_.protocol.decode_steps);
    };
    hooks.now_s = NowSeconds;
    hooks.cancel = &InterruptFlag();
    return bench::RunProtocol(config_, hooks);
  }

  int Finish(const OutFolder& folder, const json& result) {
    progress_.reset();
    WriteFile(folder.File("result.json"), result.dump(1) + "\n");
    WriteFile(folder.File("report.html"), bench::RenderHtml(result));
    Show(options_, result);
    if (!options_.common.quiet) {
      fmt::print(stderr, "result: {}\nreport: {}\n", folder.File("result.json").string(),
                 folder.File("report.html").string());
    }
    return result.at("verdict").at("status") == "not a result" ? 1 : 0;
  }

  const BenchOptions& options_;
  bench::BenchConfig config_;
  std::unique_ptr<bench::ProgressSink> progress_;
};

}  // namespace

void AddBenchCommand(CLI::App& app, Dispatch& dispatch) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command =
      app.add_subcommand("bench", "measure methods against fp16 by a protocol that can say no");
  AddModelOptions(*command, options->common);
  AddJsonOption(*command, options->common);
  command->add_option("--protocol", options->protocol, "honest, smoke, or a protocol file")
      ->capture_default_str();
  command
      ->add_option("--lengths", options->lengths,
                   "prompt lengths in tokens, separated by commas (default: the protocol's)")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--arms", options->arms,
                      "methods to compare with the baseline, separated by semicolons");
  command
      ->add_option("--rounds", options->rounds,
                   "rounds after the warm-up (default: the protocol's)")
      ->check(CLI::Range(1, 1000));
  command->add_flag("--full", options->full, "more lengths and rounds, without a time limit");
  command->add_option("--out", options->out,
                      "folder of result.json and report.html (default: bench-out/TIME)");
  command->add_option("--render", options->render,
                      "show a stored result.json again and write its report, without measuring");
  command->add_option("--memory-of", options->memory_of)->group("");
  command->add_option("--memory-length", options->memory_length)->group("");
  command->add_option("--memory-steps", options->memory_steps)->group("");
  command->callback([options, command, &dispatch] {
    options->has_kv = command->get_option("--kv")->count() > 0;
    dispatch.run = [options] {
      if (!options->memory_of.empty()) return RunMemoryProcess(*options);
      if (!options->render.empty()) return RenderStored(*options);
      return BenchCommand(*options).Run();
    };
  });
}

}  // namespace kvant::cli

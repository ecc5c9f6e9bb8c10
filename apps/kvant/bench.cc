// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// kvant bench: runs a protocol of bench/harness on a model, writes the JSON result and the report.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "apps/kvant/bench_choices.h"
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

namespace kvant::cli {
namespace {

using nlohmann::json;

bench::MemoryReport MeasureInProcess(const BenchOptions& options, const bench::Arm& arm,
                                     std::size_t length, std::size_t steps) {
  const CommonOptions& common = options.common;
  std::vector<std::string> argv = {"/proc/self/exe",
                                   "bench",
                                   "-m",
                                   common.ModelReference(),
                                   "--protocol",
                                   options.protocol,
                                   "--memory-of",
                                   arm.spec,
                                   "--memory-length",
                                   std::to_string(length),
                                   "--memory-steps",
                                   std::to_string(steps),
                                   "--threads",
                                   std::to_string(common.threads),
                                   "--kernel",
                                   common.kernel,
                                   "--prefill",
                                   common.prefill};
  if (!common.kv_limit.empty()) argv.insert(argv.end(), {"--kv-limit", common.kv_limit});
  if (common.exact) argv.push_back("--exact");
  const std::string text = bench::CaptureProcess(argv, &InterruptFlag());
  const json report = json::parse(text, nullptr, /*allow_exceptions=*/false);
  return bench::MemoryReportFromJson(report);
}

int RunMemoryProcess(const BenchOptions& options) {
  EngineOptions engine = options.common.ToEngineOptions();
  engine.kv_spec = options.memory_of;
  const bench::RunStyle style = bench::StyleOf(bench::LoadProtocol(options.protocol));
  const bench::MemoryReport report =
      bench::MeasureMemoryHere(engine, style, options.memory_length, options.memory_steps);
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
    config_.arms = ChooseArms(options_, config_.protocol);
    config_.seed = options_.common.seed;
    const EngineOptions engine = options_.common.ToEngineOptions();
    const OutFolder folder(options_);
    MakeProgress();
    bench::EngineRunner runner(engine, bench::StyleOf(config_.protocol), &InterruptFlag());
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
    const std::size_t limit = runner.DescribeModel().at("ctx_limit").get<std::size_t>();
    if (options_.common.ctx > limit) {
      progress_->Note(fmt::format("a context of {} tokens is beyond the {} that this model was made for",
                                  options_.common.ctx, limit));
    }
    config_.lengths =
        ChooseLengths(options_, protocol, runner.MaxLength(protocol.decode_steps), *progress_);
    const std::size_t wanted = options_.rounds != 0 ? options_.rounds
                               : options_.full      ? protocol.full_rounds
                                                    : protocol.rounds;
    config_.rounds = wanted;
    if (protocol.published) {  // its rounds are as published, whatever they take
      config_.balanced = false;
      return;
    }
    // What the user chose is run whatever it takes.
    config_.fit_to_budget = options_.lengths.empty() && options_.rounds == 0 && !options_.full &&
                            config_.arms.size() == protocol.arms.size() + 1;
    // Worth a word only where the user counted on a number.
    if (options_.rounds != 0 && bench::BalancedRounds(config_.arms.size(), wanted) != wanted) {
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
  command
      ->add_option("--protocol", options->protocol, "honest, published, depth, smoke, or a protocol file")
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

// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// kvant_micro: benchmarks of single kernels and of whole attention, without a model. See README.md.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "bench/micro/bench.h"
#include "bench/micro/options.h"
#include "bench/micro/summary.h"

namespace kvant::micro {
namespace {

// Stand before what is typed, which thereby wins.
constexpr const char* kDefaults[] = {"--benchmark_enable_random_interleaving=true",
                                     "--benchmark_repetitions=5", "--benchmark_min_time=0.2"};

void PrintHelp() {
  fmt::print("{}\nOptions of Google Benchmark, of which these are given where you do not:\n", OptionsHelp());
  for (const char* option : kDefaults) fmt::print("  {}\n", option);
  fmt::print("\n");
  benchmark::PrintDefaultHelp();
}

std::string JoinedIsas(const std::vector<Isa>& isas) {
  std::string text;
  for (const Isa isa : isas) text += fmt::format("{}{}", text.empty() ? "" : ",", IsaName(isa));
  return text;
}

int Run(std::vector<char*> arguments) {
  int argc = static_cast<int>(arguments.size()) - 1;
  benchmark::Initialize(&argc, arguments.data(), PrintHelp);
  Bench bench(ParseOptions(argc, arguments.data()));
  RegisterReadRows(bench);
  const std::vector<AttendRow> rows = RegisterAttendRows(bench);
  RegisterKernelRows(bench);
  RegisterProductRows(bench);
  benchmark::AddCustomContext("kernels", JoinedIsas(bench.options.isas));
  benchmark::AddCustomContext("read_buffer_bytes", fmt::format("{}", bench.read_bytes));
  SummaryReporter reporter(bench.options.all_samples);
  if (benchmark::RunSpecifiedBenchmarks(&reporter) == 0) {
    fmt::print(stderr, "kvant_micro: the filter leaves no row; --benchmark_list_tests names all\n");
    return 1;
  }
  fmt::print("{}", RatioTable(rows, reporter));
  if (reporter.failed()) fmt::print(stderr, "kvant_micro: rows above have failed\n");
  return reporter.failed() ? 1 : 0;
}

}  // namespace
}  // namespace kvant::micro

int main(int argc, char** argv) {
  std::vector<std::string> defaults(std::begin(kvant::micro::kDefaults),
                                    std::end(kvant::micro::kDefaults));
  std::vector<char*> arguments = {argv[0]};
  for (std::string& text : defaults) arguments.push_back(text.data());
  arguments.insert(arguments.end(), argv + 1, argv + argc);
  arguments.push_back(nullptr);
  try {
    return kvant::micro::Run(arguments);
  } catch (const CLI::Error& error) {
    fmt::print(stderr, "kvant_micro: {}\n", error.what());
  } catch (const std::exception& error) {
    fmt::print(stderr, "kvant_micro: {}\n", error.what());
  }
  return 2;
}

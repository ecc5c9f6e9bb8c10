// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// attend: the attention of one decode step, all layers, as the forward pass calls it.
#include <algorithm>
#include <cstdio>
#include <set>

#include "base/error.h"
#include "base/system.h"
#include "bench/micro/attend_rig.h"
#include "bench/micro/bench.h"
#include "kv/spec.h"

namespace kvant::micro {
namespace {

// A method at one context of one shape: what its caches are shared by.
struct AttendCase {
  Bench* bench;
  std::shared_ptr<const Method> method;
  std::string spec;
  std::string shape;
  std::size_t context;

  std::string rig_name() const { return fmt::format("{}/{}/ctx{}", spec, shape, context); }
  AttendRig& Rig() const {
    std::unique_ptr<AttendRig>& rig = bench->attend_rigs[rig_name()];
    if (rig == nullptr) rig = std::make_unique<AttendRig>(method, context);
    return *rig;
  }
};

void RunAttend(const AttendCase& c, Isa isa, std::size_t n_threads, bool& checked,
               benchmark::State& state) {
  AttendRig& rig = c.Rig();
  ThreadPool& threads = c.bench->threads(n_threads);
  if (!checked) {
    if (const std::string error = rig.Check(isa, threads); !error.empty()) {
      state.SkipWithError(error.c_str());
      return;
    }
    checked = true;
  }
  Attention attention(rig.method(), isa, n_threads);
  const Work work = {.bytes = static_cast<double>(rig.bytes_read()),
                     .tokens = static_cast<double>(c.context + 1),
                     .n_threads = n_threads};
  TimeLoop(*c.bench, work, state, [&] { rig.Step(attention, threads); });
}

AttendRow RegisterRow(const AttendCase& c, Isa isa, std::size_t n_threads) {
  AttendRow row;
  row.name = fmt::format("attend/{}/{}/{}/ctx{}/t{}", c.spec, IsaName(isa), c.shape, c.context,
                         n_threads);
  row.spec = c.spec;
  row.group = fmt::format("{}/{}/t{}", IsaName(isa), c.shape, n_threads);
  row.context = c.context;
  row.n_threads = n_threads;
  const auto run = [c, isa, n_threads, checked = false](benchmark::State& state) mutable {
    RunAttend(c, isa, n_threads, checked, state);
  };
  benchmark::RegisterBenchmark(row.name.c_str(), run)->Unit(benchmark::kMillisecond);
  return row;
}

}  // namespace

std::vector<AttendRow> RegisterAttendRows(Bench& bench) {
  const Options& options = bench.options;
  // Every cache stays, so that repetitions of all rows can be interleaved; a quarter is for all else.
  const std::uint64_t available = AvailableMemoryBytes();
  std::uint64_t needed = bench.read_bytes;
  std::vector<AttendRow> rows;
  for (const std::size_t context : options.contexts) {
    for (const Shape& shape : options.shapes) {
      std::vector<AttendCase> cases;
      std::uint64_t bytes = 0, read_bytes = bench.read_bytes;
      for (const std::string& spec : options.specs) {
        const auto method = std::make_shared<const Method>(ParseMethodSpec(spec), shape.geometry);
        bytes += method->PredictStepPeak(0, context + 1);
        read_bytes = std::max(read_bytes, BytesRead(*method, context));
        cases.push_back({&bench, method, spec, shape.name, context});
      }
      bytes += read_bytes - bench.read_bytes;
      if (available != 0 && needed + bytes > available / 4 * 3) {
        fmt::print(stderr,
                   "kvant_micro: left out {}/ctx{}: {} for its caches would pass three quarters of the free "
                   "memory\n",
                   shape.name, context, FormatBytes(bytes));
        continue;
      }
      needed += bytes;
      bench.read_bytes = read_bytes;
      for (const AttendCase& c : cases) {
        for (const Isa isa : options.isas) {
          for (const std::size_t n : options.threads) rows.push_back(RegisterRow(c, isa, n));
        }
      }
    }
  }
  return rows;
}

}  // namespace kvant::micro

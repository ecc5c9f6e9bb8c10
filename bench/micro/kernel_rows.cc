// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// encode, decode, score and accumulate of every codec of the registry: one thread, one block or a run.
#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "bench/micro/bench.h"
#include "bench/micro/kernel_rig.h"
#include "kv/registry.h"

namespace kvant::micro {
namespace {

// Kernels take microseconds and a pass over the read buffer a good part of a second: it is repeated from
// time to time, not for each row.
constexpr std::chrono::milliseconds kReadAge{5000};

// The kernels of one codec for one instruction set and head_dim.
struct KernelCase {
  Bench* bench;
  const CodecRecord* codec;
  std::string options;
  std::size_t head_dim;
  const KernelSet* set;

  std::string codec_name() const {
    return options.empty() ? std::string(codec->name) : fmt::format("{}:{}", codec->name, options);
  }
  std::string rig_name() const { return fmt::format("{}/d{}", codec_name(), head_dim); }
  // op/codec/kernel/d64<shape>
  std::string RowName(std::string_view op, std::string_view shape) const {
    return fmt::format("{}/{}/{}/d{}{}", op, codec_name(), IsaName(set->isa), head_dim, shape);
  }
  KernelRig& Rig() const {
    std::unique_ptr<KernelRig>& rig = bench->kernel_rigs[rig_name()];
    if (rig == nullptr) {
      const std::vector<std::size_t>& heads = bench->options.heads_per_kv;
      rig = std::make_unique<KernelRig>(*codec, options, head_dim, heads.back());
    }
    return *rig;
  }
};

/// Registers a row: `check` compares once, `run` times.
void Register(const KernelCase& c, const std::string& name,
              const std::function<std::string(KernelRig&)>& check,
              const std::function<void(KernelRig&, benchmark::State&)>& run) {
  const auto row = [c, name, check, run](benchmark::State& state) {
    KernelRig& rig = c.Rig();
    if (!rig.checked.contains(name)) {
      if (const std::string error = check(rig); !error.empty()) {
        state.SkipWithError(error.c_str());
        return;
      }
      rig.checked.insert(name);
    }
    run(rig, state);
  };
  benchmark::RegisterBenchmark(name.c_str(), row)->Unit(benchmark::kMicrosecond);
}

std::string SideName(std::string_view op, Side side) {
  return fmt::format("{}_{}", op, side == Side::kKey ? "k" : "v");
}

std::string CacheName(bool cold) { return cold ? "/cold" : "/warm"; }

void RegisterEncode(const KernelCase& c, Side side, RowData data) {
  const auto run = [c, side, data](KernelRig& rig, benchmark::State& state) {
    const EncodeArgs args = rig.Encode(side, data);
    const Work work = {.bytes = static_cast<double>(rig.block_bytes(side)),
                       .tokens = static_cast<double>(kBlockTokens),
                       .read_age = kReadAge};
    TimeLoop(*c.bench, work, state, [&] { c.set->encode(side, args); });
  };
  Register(c, c.RowName(SideName("encode", side), "/" + RowDataName(data)),
           [=](KernelRig& rig) { return rig.CheckEncode(*c.set, side, data); }, run);
}

// The work of a row that reads a run of one side.
Work RunWork(const KernelRig& rig, Side side) {
  return {.bytes = static_cast<double>(rig.run(side).size()),
          .tokens = static_cast<double>(kRunBlocks * kBlockTokens),
          .read_age = kReadAge};
}

void RegisterDecode(const KernelCase& c, Side side, bool cold) {
  const auto run = [c, side, cold](KernelRig& rig, benchmark::State& state) {
    BlockRuns runs(rig, c.rig_name(), side, cold, c.bench->meter());
    TimeLoop(*c.bench, RunWork(rig, side), state, [&] {
      const std::byte* const* blocks = runs.Next();
      for (std::size_t b = 0; b < kRunBlocks; ++b) c.set->decode(side, rig.Decode(side, blocks[b]));
    });
  };
  Register(c, c.RowName(SideName("decode", side), CacheName(cold)),
           [=](KernelRig& rig) { return rig.CheckDecode(*c.set, side); }, run);
}

void RegisterScore(const KernelCase& c, std::size_t n_query, bool cold) {
  const auto run = [c, n_query, cold](KernelRig& rig, benchmark::State& state) {
    BlockRuns runs(rig, c.rig_name(), Side::kKey, cold, c.bench->meter());
    ScoreArgs args = rig.Score(*c.set, nullptr, n_query);
    TimeLoop(*c.bench, RunWork(rig, Side::kKey), state, [&] {
      args.blocks = runs.Next();
      c.set->score(args);
    });
  };
  Register(c, c.RowName("score", fmt::format("g{}{}", n_query, CacheName(cold))),
           [=](KernelRig& rig) { return rig.CheckScore(*c.set, n_query); }, run);
}

void RegisterAccumulate(const KernelCase& c, std::size_t n_query, bool cold) {
  const auto run = [c, n_query, cold](KernelRig& rig, benchmark::State& state) {
    BlockRuns runs(rig, c.rig_name(), Side::kValue, cold, c.bench->meter());
    AccumulateArgs args = rig.Accumulate(nullptr, n_query);
    TimeLoop(*c.bench, RunWork(rig, Side::kValue), state, [&] {
      args.blocks = runs.Next();
      c.set->accumulate(args);
    });
  };
  Register(c, c.RowName("accumulate", fmt::format("g{}{}", n_query, CacheName(cold))),
           [=](KernelRig& rig) { return rig.CheckAccumulate(*c.set, n_query); }, run);
}

void RegisterCase(const KernelCase& c) {
  for (const Side side : {Side::kKey, Side::kValue}) {
    for (const RowData data : {RowData::kNormal, RowData::kZeros, RowData::kOutlier}) {
      RegisterEncode(c, side, data);
    }
    for (const bool cold : {false, true}) RegisterDecode(c, side, cold);
  }
  for (const std::size_t n_query : c.bench->options.heads_per_kv) {
    for (const bool cold : {false, true}) {
      RegisterScore(c, n_query, cold);
      RegisterAccumulate(c, n_query, cold);
    }
  }
}

}  // namespace

void RegisterKernelRows(Bench& bench) {
  for (const CodecRecord* codec : Codecs()) {
    std::vector<std::string> options = {""};
    if (bench.options.variants)
      options.insert(options.end(), codec->variants.begin(), codec->variants.end());
    for (const std::string& text : options) {
      for (const std::size_t head_dim : bench.options.head_dims) {
        if (!codec->refuse_head_dim(head_dim).empty()) continue;
        for (const KernelSet& set : codec->kernels()) {
          const std::vector<Isa>& isas = bench.options.isas;
          if (std::find(isas.begin(), isas.end(), set.isa) == isas.end()) continue;
          RegisterCase({&bench, codec, text, head_dim, &set});
        }
      }
    }
  }
}

}  // namespace kvant::micro

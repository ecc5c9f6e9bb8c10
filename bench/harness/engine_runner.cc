// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/engine_runner.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/error.h"
#include "base/memory.h"
#include "bench/harness/process_memory.h"
#include "kv/resolved_method.h"

namespace kvant::bench {
namespace {

Method BindMethod(const std::string& spec, const ModelSummary& model) {
  return Method(ParseMethodSpec(spec), model.cache);
}

[[noreturn]] void FailStopped() {
  Fail(ErrorCode::kCancelled, "the benchmark was stopped before it had a result");
}

GenerateResult Generate(Session& session, std::span<const TokenId> prompt, std::size_t decode_steps,
                        const RunStyle& style, GenerateOptions options) {
  options.max_new_tokens = decode_steps + 1;
  options.ignore_end = !style.stop_at_end;
  Sampler greedy(SamplerOptions{});
  GenerateResult result = session.Generate(prompt, greedy, options);
  if (result.finish == FinishReason::kCancelled) FailStopped();
  return result;
}

PhasePeaks TakePeaks() {
  PhasePeaks peaks;
  for (std::size_t tag = 0; tag < kMemoryTagCount; ++tag) {
    const MemoryTag memory_tag = static_cast<MemoryTag>(tag);
    peaks.by_tag[std::string(MemoryTagName(memory_tag))] = MemoryCountOf(memory_tag).peak_bytes;
  }
  peaks.total = MemoryCountTotal().peak_bytes;
  ResetMemoryPeaks();
  return peaks;
}

}  // namespace

std::string StorageOf(const std::string& spec, const ModelSummary& model) {
  const Method method = BindMethod(spec, model);
  StorageKind storage = StorageKind::kExact;
  for (std::size_t layer = 0; layer < model.n_layer; ++layer) {
    for (const SideMethod* side : {&method.layer(layer).key, &method.layer(layer).value}) {
      storage = std::max(storage, side->codec->storage);  // exact < packed < simulated
    }
  }
  return std::string(StorageKindName(storage));
}

std::size_t PredictPackedTokens(const std::string& spec, const ModelSummary& model,
                                std::size_t position) {
  return BindMethod(spec, model).PackedTokens(position);
}

nlohmann::json ModelToJson(const ModelSummary& model) {
  // Results are passed on; the folder is nobody's business.
  return {{"path", std::filesystem::path(model.path).filename().string()},
          {"name", model.name},
          {"notice", model.notice},
          {"architecture", model.architecture},
          {"weight_types", model.weight_types},
          {"file_bytes", model.file_bytes},
          {"weight_bytes", model.weight_bytes},
          {"n_layer", model.n_layer},
          {"n_q_head", model.n_q_head},
          {"n_kv_head", model.n_kv_head},
          {"head_dim", model.head_dim},
          {"n_embd", model.n_embd},
          {"n_ff", model.n_ff},
          {"n_vocab", model.n_vocab},
          {"ctx_limit", model.ctx_limit}};
}

EngineRunner::EngineRunner(const EngineOptions& options, const RunStyle& style,
                           const std::atomic<bool>* cancel)
    : options_(options), style_(style), cancel_(cancel) {}

void EngineRunner::Prepare(const Arm& arm) {
  if (engines_.count(arm.name) != 0) return;
  EngineOptions options = options_;
  options.kv_spec = arm.spec;
  // Weights are the same for every arm, and a large model fits once.
  const Engine* loaded = engines_.empty() ? nullptr : &first();
  auto engine = std::make_unique<Engine>(options, loaded);
  if (!prompts_) prompts_.emplace(style_, engine->tokenizer());
  engines_[arm.name] = std::move(engine);
}

const Engine& EngineRunner::first() const {
  KVANT_CHECK(!engines_.empty());
  return *engines_.begin()->second;
}

std::size_t EngineRunner::n_threads() const { return first().n_threads(); }

std::size_t EngineRunner::MaxLength(std::size_t decode_steps) const {
  const std::size_t ctx = first().ctx();
  if (ctx <= decode_steps + 1) return 0;
  return std::min(ctx - decode_steps - 1, prompts_->max_length());
}

nlohmann::json EngineRunner::DescribeModel() const { return ModelToJson(first().summary()); }

EngineRunner::Prefilled EngineRunner::StartFromFork(const Arm& arm,
                                                    std::span<const TokenId> prompt) {
  const auto key = std::make_pair(arm.name, prompt.size());
  auto found = prefilled_.find(key);
  if (found == prefilled_.end()) {
    Session session = engines_[arm.name]->NewSession();
    const auto begin = std::chrono::steady_clock::now();
    // In pieces, so that a run that takes minutes can be stopped.
    for (std::size_t done = 0; done + 1 < prompt.size(); done += options_.prefill_chunk) {
      if (cancel_ != nullptr && cancel_->load()) FailStopped();
      const std::size_t n = std::min(options_.prefill_chunk, prompt.size() - 1 - done);
      session.Evaluate(prompt.subspan(done, n), n, nullptr);
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    found = prefilled_.emplace(key, Prefilled{std::move(session), took.count()}).first;
  }
  return {found->second.session.Fork(), found->second.prefill_s};
}

RunSample EngineRunner::RunOnce(const Arm& arm, std::size_t length, std::size_t decode_steps) {
  KVANT_CHECK(engines_.count(arm.name) != 0);
  Engine& engine = *engines_[arm.name];
  const std::vector<TokenId> prompt = prompts_->Make(length);
  Prefilled start = style_.prefill_once ? StartFromFork(arm, prompt)
                                        : Prefilled{engine.NewSession(), 0};
  Session& session = start.session;
  GenerateOptions options;
  options.cancel = cancel_;
  GenerateResult result = Generate(session, std::span(prompt).subspan(session.kv_len()),
                                   decode_steps, style_, options);
  RunSample sample;
  sample.prompt_tokens = length;
  sample.prefill_s = start.prefill_s + result.prefill_s;
  sample.ttft_s = start.prefill_s + result.ttft_s;
  sample.decode_s = result.decode_s;
  sample.step_s = std::move(result.step_s);
  sample.tokens = std::move(result.tokens);
  sample.finish = result.finish;
  sample.kv = session.kv();
  sample.kv_sides = SidesOf(BindMethod(arm.spec, engine.summary()), session.kv_len());
  sample.storage = StorageOf(arm.spec, engine.summary());
  sample.prefill = engine.prefill().name;
  // What the last query, at the position before kv_len, was to read packed.
  sample.predicted_packed_tokens =
      PredictPackedTokens(arm.spec, engine.summary(), session.kv_len() - 1);
  return sample;
}

MemoryReport MeasureMemoryHere(const EngineOptions& options, const RunStyle& style,
                               std::size_t length, std::size_t decode_steps) {
  RssAnonSampler sampler;
  ResetMemoryPeaks();
  EngineOptions sized = options;
  sized.ctx = length + decode_steps + 1;
  Engine engine(sized);
  MemoryReport report;
  report.phases["load"] = TakePeaks();
  const std::vector<TokenId> prompt = PromptSource(style, engine.tokenizer()).Make(length);
  Session session = engine.NewSession();
  GenerateOptions generate;
  generate.on_prefill = [&report](std::size_t done, std::size_t total) {
    if (done == total) report.phases["prefill"] = TakePeaks();
  };
  Generate(session, prompt, decode_steps, style, generate);
  report.phases["decode"] = TakePeaks();
  report.kv = session.kv();
  report.storage = StorageOf(options.kv_spec, engine.summary());
  report.vm_hwm_bytes = ReadStatusBytes("VmHWM");
  report.rss_anon_peak_bytes = std::max(sampler.peak_bytes(), ReadStatusBytes("RssAnon"));
  return report;
}

}  // namespace kvant::bench

// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The runner on real engines: a tiny random model, and the default model where it is there.

#include "bench/harness/engine_runner.h"

#include <gtest/gtest.h>

#include "bench/harness/process_memory.h"
#include "bench/harness/protocol.h"
#include "kvant/error.h"
#include "tests/support/model_path.h"
#include "tests/support/tiny_engine.h"

namespace kvant::bench {
namespace {

using test::TempModel;

EngineOptions TinyOptions(const TempModel& model) {
  EngineOptions options;
  options.model_path = model.path();
  options.n_threads = 1;
  options.ctx = 512;
  return options;
}

RunStyle PublishedStyle() { return StyleOf(LoadProtocol("published")); }

TEST(EngineRunner, PublishedArmsRunOnPromptsOfExactLength) {
  const TempModel model({.n_embd = 128, .n_q_head = 2, .n_kv_head = 1, .head_dim = 64});
  EngineRunner runner(TinyOptions(model), PublishedStyle(), nullptr);
  const std::vector<std::string> specs = LoadProtocol("published").arms;
  std::vector<RunSample> samples;
  // The tiny vocabulary is bytes, so the instruction alone takes its length in characters.
  const std::size_t length = PublishedStyle().repeated->instruction.size() + 165;
  for (const std::string& spec : specs) {
    const Arm arm{spec, spec, samples.empty()};
    runner.Prepare(arm);
    samples.push_back(runner.RunOnce(arm, length, 20));
    const RunSample& sample = samples.back();
    EXPECT_EQ(sample.prompt_tokens, length);
    EXPECT_EQ(sample.kv_sides.kv_len, length + sample.tokens.size() - 1);
    EXPECT_EQ(sample.kv_sides.key_resident + sample.kv_sides.value_resident,
              sample.kv.resident_bytes)
        << spec;
    EXPECT_EQ(sample.kv_sides.fp16_key_vector, 128);
  }
  EXPECT_EQ(samples[0].kv_sides.packed_key_vector, 128);
  for (std::size_t i = 1; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i].kv_sides.packed_key_vector, 34)
        << specs[i];  // 64 codes of 4 bit, a scalar
    EXPECT_GT(samples[i].kv.packed_tokens, 0u);
    EXPECT_GT(samples[i].predicted_packed_tokens, 0u);
  }
  EXPECT_EQ(samples[1].tokens, samples[2].tokens);  // fused encode off and on
  EXPECT_EQ(samples[1].kv.path, samples[2].kv.path);
  EXPECT_NE(samples[1].kv.path, samples[3].kv.path);  // rebuilt keys are a path of their own
  EXPECT_EQ(runner.MaxLength(20), 512u - 21);
  EXPECT_EQ(runner.MaxLength(512), 0u);
  EXPECT_THROW(runner.RunOnce({specs[0], specs[0], true}, 12, 20), Error);
}

TEST(EngineRunner, RunsFromAForkOfThePromptGiveTheSameTokens) {
  const TempModel model({.n_embd = 128, .n_q_head = 2, .n_kv_head = 1, .head_dim = 64});
  RunStyle once = PublishedStyle();
  once.prefill_once = true;
  EngineRunner fresh(TinyOptions(model), PublishedStyle(), nullptr);
  EngineRunner forked(TinyOptions(model), once, nullptr);
  const std::size_t length = PublishedStyle().repeated->instruction.size() + 165;
  for (const char* spec : {"fp16", "turboquant_rvq"}) {
    const Arm arm{spec, spec, false};
    fresh.Prepare(arm);
    forked.Prepare(arm);
    const RunSample expected = fresh.RunOnce(arm, length, 70);
    for (int round = 0; round < 3; ++round) {
      const RunSample sample = forked.RunOnce(arm, length, 70);
      // One token less was prefilled in a chunk, so only the tokens are the same, not the last bits.
      EXPECT_EQ(sample.tokens, expected.tokens) << spec;
      EXPECT_EQ(sample.kv.payload_bytes, expected.kv.payload_bytes) << spec;
      EXPECT_EQ(sample.kv.packed_tokens, expected.kv.packed_tokens) << spec;
      EXPECT_EQ(sample.prompt_tokens, length);
      EXPECT_GT(sample.prefill_s, 0.0);
    }
    // A fork of another length does not disturb the first.
    EXPECT_EQ(forked.RunOnce(arm, length - 9, 3).prompt_tokens, length - 9);
    EXPECT_EQ(forked.RunOnce(arm, length, 70).tokens, expected.tokens);
  }
}

TEST(EngineRunner, MemoryIsMeasuredOnTheSamePrompt) {
  const TempModel model;
  EngineOptions options = TinyOptions(model);
  options.kv_spec = "fp16";
  const MemoryReport report = MeasureMemoryHere(options, PublishedStyle(), 200, 20);
  EXPECT_EQ(report.kv.exact_tokens, 220u);
  EXPECT_GT(report.vm_hwm_bytes, 0u);
  EXPECT_EQ(report.phases.count("prefill"), 1u);
  EXPECT_THROW(MeasureMemoryHere(options, PublishedStyle(), 12, 20), Error);
}

TEST(EngineRunner, AnAnswerEndsByItselfOnlyWhereTheStyleLetsIt) {
  const auto path = test::DefaultModelPath();
  if (!path) GTEST_SKIP() << "the default model is not there";
  EngineOptions options;
  options.model_path = *path;
  options.kv_spec = "fp16";
  RunStyle style;
  style.repeated = PublishedStyle().repeated;
  style.repeated->instruction =
      "\n\nSummarize the text above in a few sentences, then say what the weather book contains "
      "and "
      "why it matters to the town.\n";
  std::size_t n_tokens[2] = {};
  for (const bool stops : {false, true}) {
    style.stop_at_end = stops;
    EngineRunner runner(options, style, nullptr);
    const Arm arm{"fp16", "fp16", true};
    runner.Prepare(arm);
    const RunSample sample = runner.RunOnce(arm, 231, 119);
    n_tokens[stops] = sample.tokens.size();
    EXPECT_EQ(sample.finish, stops ? FinishReason::kEndOfGeneration : FinishReason::kLength);
    EXPECT_EQ(sample.step_s.size() + 1, sample.tokens.size());
  }
  EXPECT_EQ(n_tokens[0], 120u);
  EXPECT_LT(n_tokens[1], 120u);
}

}  // namespace
}  // namespace kvant::bench

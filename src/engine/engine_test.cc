// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Opening an engine: what it says about the model, and a clear error for every bad option.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backend/cpu/isa.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread_pool.h"
#include "tests/support/tiny_engine.h"

namespace kvant {
namespace {

using test::GgufWriter;
using test::TempModel;

void ExpectRefused(const EngineOptions& options, ErrorCode code,
                   const std::vector<std::string>& words) {
  try {
    const Engine engine(options);
    ADD_FAILURE() << "it was accepted; it should have said: " << words[0];
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), code) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    for (const std::string& word : words) {
      EXPECT_NE(message.find(word), std::string::npos) << "no " << word << " in: " << message;
    }
  }
}

TEST(Engine, SaysWhatItLoaded) {
  const TempModel model;
  const Engine engine({.model_path = model.path(), .n_threads = 2, .ctx = 100});
  const ModelSummary summary = engine.summary();
  EXPECT_EQ(summary.path, model.path());
  EXPECT_EQ(summary.name, "kvant tiny");
  EXPECT_EQ(summary.architecture, "llama");
  EXPECT_EQ(summary.n_layer, 2u);
  EXPECT_EQ(summary.n_q_head, 4u);
  EXPECT_EQ(summary.n_kv_head, 2u);
  EXPECT_EQ(summary.head_dim, 16u);
  EXPECT_EQ(summary.n_embd, 64u);
  EXPECT_EQ(summary.n_ff, 96u);
  EXPECT_EQ(summary.n_vocab, test::TinyVocabularySize());
  EXPECT_EQ(summary.ctx_limit, 2048u);
  EXPECT_EQ(summary.weight_types, "F32 x20");
  EXPECT_EQ(summary.file_bytes, test::TinyModelBytes({}).size());
  EXPECT_GT(summary.weight_bytes, 0u);
  EXPECT_EQ(engine.ctx(), 100u);
  EXPECT_EQ(engine.n_threads(), 2u);
  EXPECT_EQ(engine.kernel(), IsaName(SupportedIsas().back()));
  EXPECT_EQ(engine.kv_spec(), "turboquant_rvq") << "the default method";
  EXPECT_EQ(engine.tokenizer().size(), test::TinyVocabularySize());
  ASSERT_NE(engine.chat_template(), nullptr);
}

TEST(Engine, DefaultsAreTheModelsContextAndEveryProcessor) {
  const TempModel model({.ctx = 77});
  const Engine engine({.model_path = model.path()});
  EXPECT_EQ(engine.ctx(), 77u);
  EXPECT_EQ(engine.n_threads(), DefaultThreadCount());
}

TEST(Engine, RunsTheKernelThatIsNamed) {
  const TempModel model;
  for (const Isa isa : SupportedIsas()) {
    Engine engine({.model_path = model.path(), .kernel = std::string(IsaName(isa))});
    EXPECT_EQ(engine.kernel(), IsaName(isa));
    const Session session = engine.NewSession();
    EXPECT_EQ(session.kv().kernel, IsaName(isa));
    EXPECT_NE(session.kv().path.find(IsaName(isa)), std::string::npos) << session.kv().path;
  }
}

TEST(Engine, PredictsWhatTheFormatsCost) {
  const TempModel model;
  const Engine engine({.model_path = model.path(), .kv_spec = "fp16"});
  // 2 layers, 2 KV heads, keys and values of 16 numbers of 2 bytes.
  constexpr std::uint64_t kTokenBytes = 2 * 2 * 2 * 16 * 2;
  EXPECT_EQ(engine.PredictResidentBytes(0), 0u);
  EXPECT_EQ(engine.PredictResidentBytes(1), 64 * kTokenBytes);
  EXPECT_EQ(engine.PredictResidentBytes(64), 64 * kTokenBytes);
  EXPECT_EQ(engine.PredictResidentBytes(65), 128 * kTokenBytes);
  EXPECT_EQ(engine.PredictPayloadBytes(65), 65 * kTokenBytes);
}

TEST(EngineErrors, BadOptionsAreNamed) {
  const TempModel model;
  const auto options = [&model] { return EngineOptions{.model_path = model.path()}; };
  constexpr ErrorCode kInvalid = ErrorCode::kInvalidArgument;

  EngineOptions bad = options();
  bad.model_path = "no/such/model.gguf";
  ExpectRefused(bad, ErrorCode::kNotFound, {"no/such/model.gguf"});
  bad = options();
  bad.kernel = "sse2";
  ExpectRefused(bad, kInvalid, {"'sse2'", "auto, scalar"});
  bad = options();
  bad.kv_spec = "fp8";
  ExpectRefused(bad, kInvalid, {"fp8", "fp16"});
  bad = options();
  bad.kv_spec = "fp16,layers=2:k=bf16";
  ExpectRefused(bad, kInvalid, {"layer 2", "layers 0 to 1"});
  bad = options();
  bad.n_threads = 300;
  ExpectRefused(bad, kInvalid, {"300 threads", "1 to 256"});
  bad = options();
  bad.ctx = (std::size_t{1} << 32) + 1;
  ExpectRefused(bad, kInvalid, {"4294967297", "4294967296", "made for 2048"});
  for (const std::size_t chunk : {0, 8193}) {
    bad = options();
    bad.prefill_chunk = chunk;
    ExpectRefused(bad, kInvalid, {"chunk of " + std::to_string(chunk), "1 to 8192"});
  }
}

TEST(EngineErrors, OptionsAreCheckedBeforeTheModelIsRead) {
  ExpectRefused({.model_path = "no/such/model.gguf", .kv_spec = "fp8"}, ErrorCode::kInvalidArgument,
                {"fp8"});
  ExpectRefused({.model_path = "no/such/model.gguf", .kernel = "sse2"}, ErrorCode::kInvalidArgument,
                {"sse2"});
}

TEST(EngineErrors, AContextThatNoMemoryHoldsIsRefusedWithOneThatFits) {
  constexpr std::size_t kHuge = std::size_t{1} << 31;  // 8 TiB of blocks: 4 KiB for each token
  const TempModel model({.n_q_head = 32, .n_kv_head = 32, .ctx = kHuge});
  ExpectRefused({.model_path = model.path(), .kv_spec = "fp16"}, ErrorCode::kResourceExhausted,
                {std::to_string(kHuge) + " tokens", "8.0 TiB", "--ctx"});
  ExpectRefused({.model_path = model.path(), .kv_spec = "turboquant_rvq"},
                ErrorCode::kInvalidArgument, {"k_mean=rope", "1048576", "--ctx"});
  // A limit of the user's choice is checked when it is reached, not before.
  EXPECT_NO_THROW(
      Engine({.model_path = model.path(), .kv_spec = "fp16", .kv_limit_bytes = 1 << 20}));
  EXPECT_NO_THROW(Engine({.model_path = model.path(), .ctx = 64}));
}

TEST(EngineErrors, AHeadSizeThatTheCodecCannotKeepIsRefused) {
  const TempModel model({.n_embd = 64, .n_q_head = 8, .n_kv_head = 8, .head_dim = 8});
  for (const std::string spec : {"fp16", "turboquant_rvq"}) {
    ExpectRefused({.model_path = model.path(), .kv_spec = spec}, ErrorCode::kUnsupported,
                  {"'" + spec + "'", "head_dim 8", "multiple of 16"});
  }
}

// The vocabulary has 258 tokens and the embedding 20 rows.
TEST(EngineErrors, ATokenizerThatDoesNotFitTheWeightsIsRefused) {
  GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::uint32_t>>{{"block_count", 1},
                                                          {"context_length", 64},
                                                          {"embedding_length", 32},
                                                          {"feed_forward_length", 32},
                                                          {"attention.head_count", 2}}) {
    writer.Add("llama." + key, value);
  }
  writer.Add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  std::vector<std::string> tokens;
  // U+FFFD's three bytes in the byte alphabet, and others that mean nothing.
  for (const char* byte : {"\xc3\xaf", "\xc2\xbf", "\xc2\xbd"}) tokens.emplace_back(byte);
  while (tokens.size() < 258) tokens.push_back("word" + std::to_string(tokens.size()));
  writer.AddString("tokenizer.ggml.model", "gpt2");
  writer.AddString("tokenizer.ggml.pre", "smollm");
  writer.AddStringArray("tokenizer.ggml.tokens", tokens);
  writer.AddStringArray("tokenizer.ggml.merges", {});
  const std::vector<float> values(32 * 20, 0.0f);
  writer.AddTensor("token_embd.weight", 0, {32, 20}, std::as_bytes(std::span(values)));
  const TempModel model(writer.Build());
  ExpectRefused({.model_path = model.path()}, ErrorCode::kCorruptData, {"258 tokens", "20 rows"});
}

TEST(EngineErrors, AFileCutAnywhereIsAnErrorAndNothingElse) {
  const std::vector<std::byte> bytes = test::TinyModelBytes({.n_layer = 1});
  const std::uint64_t before = MemoryCountTotal().current_bytes;
  for (std::size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 97) {
    const TempModel model{std::span(bytes).first(size)};
    EXPECT_THROW(Engine({.model_path = model.path()}), Error) << size << " of " << bytes.size();
  }
  EXPECT_EQ(MemoryCountTotal().current_bytes, before);
}

TEST(Engine, FinishReasonsHaveTheirNames) {
  EXPECT_EQ(FinishReasonName(FinishReason::kEndOfGeneration), "end");
  EXPECT_EQ(FinishReasonName(FinishReason::kStopString), "stop");
  EXPECT_EQ(FinishReasonName(FinishReason::kLength), "length");
  EXPECT_EQ(FinishReasonName(FinishReason::kContextFull), "context_full");
  EXPECT_EQ(FinishReasonName(FinishReason::kKvLimit), "kv_limit");
  EXPECT_EQ(FinishReasonName(FinishReason::kCancelled), "cancelled");
}

TEST(Engine, RatesAreZeroWhereNothingWasMeasured) {
  GenerateResult result;
  EXPECT_EQ(result.prefill_tok_s(), 0);
  EXPECT_EQ(result.decode_tok_s(), 0);
  result.prompt_tokens = 30;
  result.prefill_s = 0.5;
  result.step_s = {0.1, 0.1, 0.2};
  result.decode_s = 0.4;
  EXPECT_DOUBLE_EQ(result.prefill_tok_s(), 60);
  EXPECT_DOUBLE_EQ(result.decode_tok_s(), 7.5);
}

}  // namespace
}  // namespace kvant

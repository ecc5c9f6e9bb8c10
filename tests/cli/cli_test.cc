// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The program from outside, as scripts and people see it: exit status, one-sentence errors, JSON names.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/run_kvant.h"
#include "tests/support/tiny_model.h"

namespace kvant {
namespace {

using test::Kvant;
using test::Outcome;
using test::Slurp;

std::string TinyModel() {
  const std::string path = "tiny_" + std::to_string(getpid()) + ".gguf";
  test::TinyModelOptions options;
  test::WriteTinyModel(path, options);
  return path;
}

class CliTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = TinyModel(); }
  static void TearDownTestSuite() { std::filesystem::remove(model_); }

  // One line on stderr that starts with "kvant: " and says this; exit status 2; nothing on stdout.
  static void ExpectBadInput(const std::vector<std::string>& arguments, const std::string& says,
                             const std::string& input = "") {
    const Outcome outcome = Kvant(arguments, input);
    std::string shown;
    for (const std::string& argument : arguments) shown += " " + argument;
    EXPECT_EQ(outcome.status, 2) << shown << "\n" << outcome.err;
    EXPECT_NE(outcome.err.find(says), std::string::npos) << shown << "\n" << outcome.err;
    EXPECT_EQ(outcome.err.rfind("kvant: ", 0), 0u) << shown << "\n" << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_EQ(outcome.out, "") << shown;
  }

  static std::string WriteFile(const std::string& name, const std::string& bytes) {
    std::ofstream(name, std::ios::binary) << bytes;
    return name;
  }

  static std::string model_;
};

std::string CliTest::model_;

TEST_F(CliTest, BadUsageIsOneSentence) {
  ExpectBadInput({"frobnicate"}, "unknown command 'frobnicate'; there are: run, chat");
  ExpectBadInput({"run", "--bogus"}, "--bogus");
  ExpectBadInput({"run", "-n", "many", "-p", "x"}, "many");
  ExpectBadInput({"run", "-m", model_, "-p", "x", "--threads", "1000"}, "allowed are 1 to 256");
  ExpectBadInput({"run", "-m", model_, "-p", "x", "--temp", "-1"}, "temperature");
  ExpectBadInput({"run", "-m", model_, "-p", "x", "--top-p", "0"}, "top-p");
  ExpectBadInput({"run", "-m", model_, "-p", "x", "--device", "cuda"}, "--device cpu");
  ExpectBadInput({"run", "-m", model_, "-p", "x", "--kv-limit", "12Q"}, "is not a size");
  ExpectBadInput({"run", "-m", model_, "-p", "x", "--raw", "--system", "y"}, "leave out --raw");
  EXPECT_EQ(Kvant({}).status, 2);
}

TEST_F(CliTest, BadModelsAreOneSentence) {
  ExpectBadInput({"run", "-m", "none.gguf", "-p", "x"}, "none.gguf");
  ExpectBadInput({"run", "-m", "no-such-name", "-p", "x"}, "kvant fetch");
  ExpectBadInput({"run", "-m", WriteFile("empty.gguf", ""), "-p", "x"}, "empty");
  ExpectBadInput({"run", "-m", WriteFile("magic.gguf", "ELF? no, this is not a model"), "-p", "x"},
                 "instead of \"GGUF\"");
  const std::string whole = Slurp(model_);
  for (const std::size_t share : {2, 3, 10}) {
    ExpectBadInput({"run", "-m", WriteFile("cut.gguf", whole.substr(0, whole.size() / share)), "-p", "x"},
                   "cut.gguf");
  }
  for (const char* command : {"inspect", "tokenize"}) {
    ExpectBadInput({command, "-m", "empty.gguf"}, "empty");
  }
}

TEST_F(CliTest, BadMethodsKernelsAndContextsAreOneSentence) {
  ExpectBadInput({"run", "-m", model_, "-p", "x", "--kv", "int3"}, "character 1: unknown method 'int3'");
  ExpectBadInput({"run", "-m", model_, "-p", "x", "--kv", "fp16:bits=4"}, "no option 'bits'");
  ExpectBadInput({"run", "-m", model_, "-p", "x", "--kv", "fp16,layers=99:k=bf16"}, "layer 99");
  ExpectBadInput({"run", "-m", model_, "-p", "x", "--kernel", "mmx"}, "unknown kernel 'mmx'");
  ExpectBadInput({"run", "-m", model_, "-p", "x", "--kernel", "cuda"}, "kernel 'cuda'");
  ExpectBadInput({"run", "-m", model_, "-p", "x", "--ctx", "100000000"}, "k_mean=rope");
  ExpectBadInput({"run", "-m", model_, "-p", "x", "--ctx", "10000000000"}, "was made for");
  ExpectBadInput({"run", "-m", model_, "-p", "x", "--kv-limit", "64"}, "raise --kv-limit");
  ExpectBadInput({"run", "-m", model_, "-p", "a long prompt", "--ctx", "2"}, "the context holds 2");
  ExpectBadInput({"methods", "--head-dim", "40"}, "multiple of 16");
}

TEST_F(CliTest, EmptyAndMissingInputIsOneSentence) {
  ExpectBadInput({"run", "-m", model_, "-p", ""}, "the prompt is empty");
  ExpectBadInput({"run", "-m", model_}, "the prompt is empty");
  ExpectBadInput({"run", "-m", model_, "-f", "/no/such/file"}, "/no/such/file");
  ExpectBadInput({"tokenize", "-m", model_, "--decode"}, "'seven' is not a token id", "1 seven");
  ExpectBadInput({"tokenize", "-m", model_, "--decode"}, "outside the vocabulary", "99999999");
  ExpectBadInput({"eval", "-m", model_}, "--text FILE or --ids FILE");
  ExpectBadInput({"eval", "-m", model_, "--ids", WriteFile("ids.json", "{\"ids\": [1, \"x\"]}")},
                 "not a file of token ids");
  ExpectBadInput({"eval", "-m", model_, "--ids", WriteFile("one.json", "[1]")}, "at least 2");
  ExpectBadInput({"eval", "-m", model_, "--ids", WriteFile("far.json", "[1, 99999999]")},
                 "outside the vocabulary");
}

TEST_F(CliTest, RunGivesTheNamesThatScriptsRelyOn) {
  const Outcome outcome = Kvant({"run", "-m", model_, "-p", "abc abc", "-n", "5", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const nlohmann::json result = nlohmann::json::parse(outcome.out);
  for (const char* name : {"text", "tokens", "prompt_tokens", "new_tokens", "prefill_s", "ttft_s",
                           "decode_s", "prefill_tok_s", "decode_tok_s", "kv", "process_peak_bytes"}) {
    EXPECT_TRUE(result.contains(name)) << name;
  }
  for (const char* name : {"spec", "payload_bytes", "resident_bytes", "peak_bytes", "packed_tokens",
                           "exact_tokens", "kernel", "path"}) {
    EXPECT_TRUE(result["kv"].contains(name)) << name;
  }
  EXPECT_EQ(result["tokens"].size(), result["new_tokens"].get<std::size_t>());
}

TEST_F(CliTest, ResidentBytesOfARunAreThePredictionOfInspect) {
  for (const char* spec : {"fp16", "bf16", "k=bf16,v=bf16,sink=4"}) {
    const Outcome run =
        Kvant({"run", "-m", model_, "-p", "abc abc abc", "-n", "90", "--kv", spec, "--json"});
    ASSERT_EQ(run.status, 0) << run.err;
    const nlohmann::json kv = nlohmann::json::parse(run.out)["kv"];
    const std::string tokens = std::to_string(kv["tokens"].get<std::size_t>());
    const Outcome inspect = Kvant({"inspect", "-m", model_, "--ctx", tokens, "--kv", spec, "--json"});
    ASSERT_EQ(inspect.status, 0) << inspect.err;
    const nlohmann::json method = nlohmann::json::parse(inspect.out)["methods"][0];
    EXPECT_EQ(kv["resident_bytes"], method["resident_bytes"]) << spec;
    EXPECT_EQ(kv["payload_bytes"], method["payload_bytes"]) << spec;
  }
}

TEST_F(CliTest, TheKvLimitIsKeptAndWhatWasSaidIsNotLost) {
  const Outcome run = Kvant({"run", "-m", model_, "-p", "a", "-n", "300", "--json", "--raw"});
  ASSERT_EQ(run.status, 0) << run.err;
  const nlohmann::json free = nlohmann::json::parse(run.out);
  const auto limit = free["kv"]["peak_bytes"].get<std::uint64_t>() / 2;
  const Outcome limited = Kvant(
      {"run", "-m", model_, "-p", "a", "-n", "300", "--json", "--raw", "--kv-limit", std::to_string(limit)});
  EXPECT_EQ(limited.status, 2);
  EXPECT_NE(limited.err.find("--kv-limit"), std::string::npos) << limited.err;
  const nlohmann::json result = nlohmann::json::parse(limited.out);
  EXPECT_EQ(result["finish"], "kv_limit");
  EXPECT_LE(result["kv"]["peak_bytes"].get<std::uint64_t>(), limit);
  const std::size_t n = result["tokens"].size();
  ASSERT_GT(n, 0u);
  for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(result["tokens"][i], free["tokens"][i]);
}

TEST_F(CliTest, TextIsTheSameForAnyThreadsAndChunks) {
  const auto text = [&](const std::vector<std::string>& extra) {
    std::vector<std::string> arguments = {"run", "-m", model_, "-p", std::string(200, 'a'), "-n", "40",
                                          "--json"};
    arguments.insert(arguments.end(), extra.begin(), extra.end());
    const Outcome outcome = Kvant(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out)["tokens"];
  };
  const nlohmann::json want = text({"--threads", "1"});
  EXPECT_EQ(text({"--threads", "2"}), want);
  EXPECT_EQ(text({"--threads", "3"}), want);
  EXPECT_EQ(text({"--exact"}), want);
  EXPECT_EQ(text({"--kernel", "scalar"}), want);
}

TEST_F(CliTest, TokenizeGoesThereAndBack) {
  const std::string input = "Hello\n w\xc3\xb6rld \xff\xfe!";
  const Outcome ids = Kvant({"tokenize", "-m", model_}, input);
  ASSERT_EQ(ids.status, 0) << ids.err;
  EXPECT_EQ(Kvant({"tokenize", "-m", model_, "--decode"}, ids.out).out, input);
  const Outcome json = Kvant({"tokenize", "-m", model_, "--json"}, input);
  EXPECT_TRUE(nlohmann::json::parse(json.out).contains("ids"));
}

TEST_F(CliTest, EvalOfAMethodAgainstItselfIsExactlyZero) {
  const std::string ids = WriteFile("eval_ids.json", "{\"ids\": [5, 9, 12, 7, 5, 9, 30, 31, 32, 5, 9]}");
  const Outcome outcome = Kvant({"eval", "-m", model_, "--ids", ids, "--against", "fp16", "--prefill", "f32",
                                 "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const nlohmann::json result = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(result["n"], 10);
  EXPECT_EQ(result["nll"].size(), 10u);
  EXPECT_EQ(result["kld"]["mean"], 0.0);
  EXPECT_EQ(result["top1_agreement"], 1.0);
  const Outcome chunked =
      Kvant({"eval", "-m", model_, "--ids", ids, "--chunk", "4", "--prefill", "f32", "--json"});
  EXPECT_EQ(nlohmann::json::parse(chunked.out)["nll"], result["nll"]);
}

TEST_F(CliTest, PrefillArithmeticIsChosenByNameAndSaid) {
  const Outcome f32 = Kvant({"run", "-m", model_, "-p", "hello", "-n", "2", "--prefill", "f32", "--json"});
  ASSERT_EQ(f32.status, 0) << f32.err;
  const nlohmann::json prefill = nlohmann::json::parse(f32.out)["prefill"];
  EXPECT_EQ(prefill["name"].get<std::string>().rfind("f32/", 0), 0u) << prefill;
  EXPECT_EQ(prefill["reason"], "asked for");
  const Outcome stats = Kvant({"run", "-m", model_, "-p", "hello", "-n", "2", "--stats"});
  EXPECT_NE(stats.err.find("prefill products "), std::string::npos) << stats.err;
  const Outcome unknown = Kvant({"run", "-m", model_, "-p", "hello", "--prefill", "int4"});
  EXPECT_NE(unknown.status, 0);
  EXPECT_NE(unknown.err.find("auto, f32, bf16"), std::string::npos) << unknown.err;
}

TEST_F(CliTest, ChatKeepsTheConversationAndSaysWhenItIsFull) {
  const Outcome chat = Kvant({"chat", "-m", model_, "-n", "5"}, "hello\n/kv\n/nonsense\n/reset\nagain\n");
  EXPECT_EQ(chat.status, 0) << chat.err;
  EXPECT_NE(chat.err.find("resident for"), std::string::npos) << chat.err;
  EXPECT_NE(chat.err.find("unknown command '/nonsense'"), std::string::npos) << chat.err;
  const Outcome full = Kvant({"chat", "-m", model_, "-n", "5", "--ctx", "8"}, "a question\n");
  EXPECT_NE(full.err.find("the context holds 8"), std::string::npos) << full.err;
}

TEST_F(CliTest, HelpAndListsWork) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"}, {"run", "--help"}, {"methods"}, {"--version"}}) {
    const Outcome outcome = Kvant(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_NE(outcome.out, "");
    EXPECT_EQ(outcome.err, "");
  }
  const nlohmann::json methods = nlohmann::json::parse(Kvant({"methods", "--json"}).out);
  for (const auto& codec : methods["codecs"]) {
    for (const char* name :
         {"name", "storage", "kernels", "bytes_per_token_k", "bytes_per_token_v", "options"}) {
      EXPECT_TRUE(codec.contains(name)) << name;
    }
  }
}

}  // namespace
}  // namespace kvant

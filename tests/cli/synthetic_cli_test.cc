// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Synthetic models from outside: every command runs them, and every output says what they are.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/run_kvant.h"

namespace kvant {
namespace {

using nlohmann::json;
using test::Kvant;
using test::Outcome;
using test::Slurp;

const std::string kNotice = "synthetic weights: speed and memory only";
const std::string kFields = "n_layer=2,n_embd=64,n_ff=96,n_q_head=4,n_kv_head=2,n_vocab=300";

class SyntheticCliTest : public testing::Test {
 protected:
  SyntheticCliTest() : folder_("synthetic_cli_" + std::to_string(getpid())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  ~SyntheticCliTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  static Outcome Synthetic(const std::string& command, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {command, "-m", "synthetic:custom", "--geometry", kFields});
    return Kvant(more);
  }
  static void ExpectRefused(const std::vector<std::string>& arguments, const std::string& says) {
    const Outcome outcome = Kvant(arguments);
    EXPECT_EQ(outcome.status, 2) << outcome.err;
    EXPECT_NE(outcome.err.find(says), std::string::npos) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }

  std::string folder_;
};

TEST_F(SyntheticCliTest, RunSaysItAlsoWhenQuiet) {
  const Outcome text = Synthetic("run", {"-p", "Hello", "-n", "4", "--quiet"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_EQ(text.err, kNotice + "\n");
  const Outcome outcome = Synthetic("run", {"-p", "Hello", "-n", "4", "--json"});
  const json document = json::parse(outcome.out);
  EXPECT_EQ(document["notice"], kNotice);
  EXPECT_EQ(document["prompt_tokens"], 5);
  EXPECT_EQ(document["new_tokens"], 4);
}

TEST_F(SyntheticCliTest, TheSeedDecidesAndThreadsDoNot) {
  const auto tokens = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"-p", "Hello", "-n", "8", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return json::parse(Synthetic("run", arguments).out)["tokens"];
  };
  const json first = tokens({"--threads", "1"});
  EXPECT_EQ(tokens({"--threads", "3", "--seed", "42"}), first);
  EXPECT_NE(tokens({"--seed", "43"}), first);
}

TEST_F(SyntheticCliTest, InspectSaysIt) {
  const Outcome text = Kvant({"inspect", "-m", "synthetic:qwen3-8b"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_NE(text.out.find(kNotice + "\n"), std::string::npos) << text.out;
  const json document = json::parse(Kvant({"inspect", "-m", "synthetic:qwen3-8b", "--json"}).out);
  EXPECT_EQ(document["notice"], kNotice);
  EXPECT_EQ(document["geometry"]["n_layer"], 36);
}

TEST_F(SyntheticCliTest, EvalAndCalibrateSayIt) {
  std::ofstream(Path("text")) << "Forty bytes of text are forty tokens here.";
  const Outcome text = Synthetic("eval", {"--text", Path("text"), "--steps", "8", "--against", "fp16"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_EQ(text.out.rfind(kNotice + "\n", 0), 0u) << text.out;
  const Outcome outcome = Synthetic("eval", {"--text", Path("text"), "--steps", "8", "--json"});
  EXPECT_EQ(json::parse(outcome.out)["notice"], kNotice);
  const Outcome profile = Synthetic("calibrate", {"smooth", Path("text"), "-o", Path("profile")});
  EXPECT_EQ(profile.status, 0) << profile.err;
  EXPECT_NE(profile.out.find(kNotice), std::string::npos) << profile.out;
}

TEST_F(SyntheticCliTest, ChatSaysIt) {
  const Outcome outcome = Kvant({"chat", "-m", "synthetic:custom", "--geometry", kFields, "-n", "4"}, "Hello\n");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.err.find(kNotice), std::string::npos) << outcome.err;
}

TEST_F(SyntheticCliTest, BenchSaysItInEveryForm) {
  const Outcome outcome = Synthetic("bench", {"--protocol", "smoke", "--lengths", "17", "--rounds", "1", "--out",
                                              Path("out"), "--quiet"});
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find(kNotice + "\n"), std::string::npos) << outcome.out;
  EXPECT_NE(Slurp(Path("out/report.html")).find(kNotice), std::string::npos);
  const json result = json::parse(Slurp(Path("out/result.json")));
  EXPECT_EQ(result["model"]["notice"], kNotice);
  const std::string command = result["command"];
  EXPECT_NE(command.find("-m synthetic:custom"), std::string::npos) << command;
  EXPECT_NE(command.find("--geometry " + kFields), std::string::npos) << command;
  // A stored result says it too.
  const Outcome again = Kvant({"bench", "--render", Path("out/result.json"), "--out", Path("again")});
  EXPECT_NE(again.out.find(kNotice + "\n"), std::string::npos) << again.out;
}

TEST_F(SyntheticCliTest, BadGeometriesAreOneSentence) {
  ExpectRefused({"run", "-m", "synthetic:qwen9", "-p", "x"}, "the names are qwen3-8b");
  ExpectRefused({"run", "-m", "synthetic:custom", "-p", "x"}, "lacks n_layer");
  ExpectRefused({"run", "-m", "synthetic:smollm2-135m", "--geometry", "depth=3", "-p", "x"}, "the fields are");
  ExpectRefused({"run", "-m", "model.gguf", "--geometry", "n_layer=3", "-p", "x"}, "-m synthetic:NAME");
  ExpectRefused({"inspect", "-m", "synthetic:smollm2-135m", "--geometry", "n_layer=0"}, "allowed are 1 to 1024");
}

}  // namespace
}  // namespace kvant

// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Saved states from outside: run --save and --load, /save and /load in chat, and what they refuse.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/run_kvant.h"
#include "tests/support/tiny_model.h"

namespace kvant {
namespace {

using nlohmann::json;
using test::Kvant;
using test::Outcome;
using test::Slurp;

class StateCliTest : public testing::Test {
 protected:
  StateCliTest() : folder_("state_cli_" + std::to_string(getpid())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    test::TinyModelOptions options;
    test::WriteTinyModel(model_ = Path("tiny.gguf"), options);
  }
  ~StateCliTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  Outcome Run(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"run", "-m", model_, "--quiet"};
    if (std::find(more.begin(), more.end(), "-n") == more.end()) more.insert(more.end(), {"-n", "40"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Kvant(arguments);
  }
  json RunJson(std::vector<std::string> more) const {
    more.push_back("--json");
    const Outcome outcome = Run(more);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json::parse(outcome.out, nullptr, false);
  }
  void ExpectRefused(std::vector<std::string> more, const std::string& says) const {
    const Outcome outcome = Run(more);
    EXPECT_EQ(outcome.status, 2) << says << ": " << outcome.err;
    EXPECT_NE(outcome.err.find(says), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.rfind("kvant: ", 0), 0u) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
  Outcome Chat(const std::string& lines) const {
    return Kvant({"chat", "-m", model_, "--quiet", "-n", "30"}, lines);
  }

  std::string folder_, model_;
};

// The tokens of an answer in three runs, each of which loads what the one before saved, are those of one
// conversation in chat.
TEST_F(StateCliTest, RunsInARowAreOneConversation) {
  const std::string a = Path("a.state"), b = Path("b.state");
  const json first = RunJson({"-p", "hello there", "--save", a});
  EXPECT_TRUE(first["load"].is_null());
  EXPECT_EQ(first["save"]["path"], a);
  EXPECT_EQ(first["save"]["bytes"], std::filesystem::file_size(a));
  EXPECT_EQ(first["save"]["tokens"], first["prompt_tokens"].get<int>() + first["new_tokens"].get<int>());
  const json second = RunJson({"-p", "and then?", "--load", a, "--save", b});
  EXPECT_EQ(second["load"]["path"], a);
  EXPECT_EQ(second["load"]["tokens"], first["save"]["tokens"]);
  const json third = RunJson({"-p", "so?", "--load", b, "--kernel", "scalar"});
  EXPECT_TRUE(third["save"].is_null());
  const Outcome chat =
      Kvant({"chat", "-m", model_, "--quiet", "-n", "40"}, "hello there\nand then?\nso?\n");
  const auto text = [](const json& result) { return result["text"].get<std::string>() + "\n"; };
  // Answers of a random model are bytes; --json writes what is not UTF-8 as U+FFFD, as chat does.
  EXPECT_EQ(chat.out, text(first) + text(second) + text(third)) << chat.err;
}

TEST_F(StateCliTest, RawStatesAreContinuedAsTheyStand) {
  const json whole = RunJson({"--raw", "-p", "abc abc xyz"});
  RunJson({"--raw", "-p", "abc abc", "-n", "0", "--save", Path("prefix")});
  const json rest = RunJson({"--raw", "-p", " xyz", "--load", Path("prefix")});
  EXPECT_EQ(rest["kv"]["tokens"], whole["kv"]["tokens"]);
  EXPECT_EQ(rest["tokens"], whole["tokens"]);
}

TEST_F(StateCliTest, ALoadedChatGoesOnAsTheSavedOne) {
  const std::string file = Path("a state");
  const Outcome saved = Chat("hello\n/save " + file + "\nmore\nand more\n");
  EXPECT_EQ(saved.status, 0) << saved.err;
  EXPECT_NE(saved.err.find(" tokens to " + file), std::string::npos) << saved.err;
  const Outcome first = Chat("hello\n");
  const Outcome loaded = Chat("something else\n/load " + file + "  \nmore\nand more\n");
  EXPECT_NE(loaded.err.find(" tokens from " + file + ";"), std::string::npos) << loaded.err;
  const Outcome other = Chat("something else\n");
  EXPECT_EQ(loaded.out.substr(other.out.size()), saved.out.substr(first.out.size())) << loaded.err;
  EXPECT_GT(loaded.out.size(), other.out.size());
}

TEST_F(StateCliTest, ChatSaysWhatItCannotSaveOrLoadAndGoesOn) {
  std::ofstream(Path("text")) << "not a state";
  const Outcome chat = Chat("hello\n/save\n/load \n/saveas x\n/save " + Path("none/x") + "\n/load " +
                            Path("none") + "\n/load " + Path("text") + "\nmore\n");
  EXPECT_EQ(chat.status, 0);
  for (const char* says : {"write /save FILE", "write /load FILE", "'/saveas x' names no file",
                           "none/x': No such file", "none': No such file", "not a saved state"}) {
    EXPECT_NE(chat.err.find(says), std::string::npos) << says << "\n" << chat.err;
  }
  EXPECT_EQ(chat.out, Chat("hello\nmore\n").out) << "what was refused changed nothing";
}

TEST_F(StateCliTest, WhatDoesNotFitIsOneSentence) {
  const std::string file = Path("a.state");
  ASSERT_EQ(Run({"-p", "hello", "--save", file}).status, 0);
  ExpectRefused({"-p", "x", "--load", file, "--kv", "fp16"}, "its method is 'turboquant_rvq'");
  ExpectRefused({"-p", "x", "--load", file, "--ctx", "20"}, "raise --ctx to");
  ExpectRefused({"-p", "x", "--load", file, "--kv-limit", "1K"}, "raise --kv-limit");
  ExpectRefused({"-p", "x", "--load", file, "--system", "be short"}, "leave out --system");
  ExpectRefused({"-p", "x", "--load", Path("none")}, "No such file");
  ExpectRefused({"-p", "x", "--load", model_}, "does not begin with KVSTATE");
  ExpectRefused({"-p", "x", "--save", Path("none/a.state")}, "No such file");
  ExpectRefused({"-p", "x", "--save", folder_}, "not a file");
  std::string bytes = Slurp(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  std::ofstream(file, std::ios::binary) << bytes;
  ExpectRefused({"-p", "x", "--load", file}, "its checksum does not agree");
  std::ofstream(file, std::ios::binary) << bytes.substr(0, 300);
  ExpectRefused({"-p", "x", "--load", file}, "truncated");
}

TEST_F(StateCliTest, AnAnswerIsNotLostWithItsState) {
  const std::string file = Path("a.state");
  ASSERT_EQ(Run({"-p", "hello", "-n", "2", "--save", file}).status, 0);
  const std::string old = Slurp(file);
  struct sigaction before = {}, ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGXFSZ, &ignore, &before);  // the program inherits both: a disk that is full
  rlimit limit = {};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small = {.rlim_cur = 8192, .rlim_max = limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const Outcome outcome =
      Run({"-p", std::string(300, 'a'), "-n", "5", "--load", file, "--save", file, "--json"});
  setrlimit(RLIMIT_FSIZE, &limit);
  sigaction(SIGXFSZ, &before, nullptr);
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("make room"), std::string::npos) << outcome.err;
  const json result = json::parse(outcome.out, nullptr, false);
  ASSERT_FALSE(result.is_discarded()) << outcome.out;
  EXPECT_EQ(result["tokens"].size(), 5u);
  EXPECT_TRUE(result["save"].is_null());
  EXPECT_TRUE(Slurp(file) == old);
}

}  // namespace
}  // namespace kvant

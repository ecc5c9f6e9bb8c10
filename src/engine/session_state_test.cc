// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Session::Save and Session::Load: what follows is what would have followed, what does not fit is refused,
// and neither a file nor a session is ever half there.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "backend/cpu/isa.h"
#include "engine/engine.h"
#include "kvant/error.h"
#include "tests/support/tiny_engine.h"

namespace kvant {
namespace {

namespace fs = std::filesystem;
using test::GreedyTokens;
using test::LogitsOf;
using test::TempModel;

const std::vector<TokenId> kSecondPrompt = {11, 12, 13};

std::vector<TokenId> Prompt(std::size_t n) {
  std::vector<TokenId> prompt(n);
  std::iota(prompt.begin(), prompt.end(), 20);
  for (TokenId& id : prompt) id = 20 + id % 90;
  return prompt;
}

std::string Slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class SessionStateTest : public testing::Test {
 protected:
  SessionStateTest() : folder_("state_" + std::to_string(getpid())) {
    fs::remove_all(folder_);
    fs::create_directory(folder_);
  }
  ~SessionStateTest() override { fs::remove_all(folder_); }

  EngineOptions Options(const std::string& spec = "turboquant_rvq") const {
    return {.model_path = model_.path(), .kv_spec = spec, .n_threads = 1};
  }
  std::string Path(const std::string& name = "a.state") const { return folder_ + "/" + name; }
  std::size_t FilesInFolder() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }

  static void ExpectError(ErrorCode code, const std::string& word, const std::function<void()>& action) {
    try {
      action();
      ADD_FAILURE() << "no error; expected one with " << word;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << word << ": " << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    }
  }
  // Loading into a session that has a past is refused and the session goes on as if nothing had been asked.
  void ExpectLoadRefused(const EngineOptions& options, ErrorCode code, const std::string& word) {
    Engine engine(options);
    Session session = engine.NewSession();
    Session untouched = engine.NewSession();
    GreedyTokens(session, Prompt(10), 5);
    GreedyTokens(untouched, Prompt(10), 5);
    ExpectError(code, word, [&] { session.Load(Path()); });
    EXPECT_EQ(session.kv().resident_bytes, engine.PredictResidentBytes(session.kv_len()));
    EXPECT_EQ(GreedyTokens(session, kSecondPrompt, 5), GreedyTokens(untouched, kSecondPrompt, 5));
  }
  void SaveSome(const EngineOptions& options, std::size_t n_prompt = 200) {
    Engine engine(options);
    Session session = engine.NewSession();
    GreedyTokens(session, Prompt(n_prompt), 5);
    session.Save(Path());
  }

  TempModel model_;
  std::string folder_;
};

TEST_F(SessionStateTest, ALoadedSessionGoesOnAsTheSavedOne) {
  for (const char* spec : {"fp16", "turboquant_rvq", "turboquant_rvq_published", "bf16",
                           "k=turboquant_mse:bits=3,v=turboquant_mse,k_mean=refreeze:64,smooth=balanced"}) {
    for (const std::size_t n_prompt : {1, 60, 64, 200, 300}) {
      SCOPED_TRACE(spec + std::string(", prompt ") + std::to_string(n_prompt));
      EngineOptions options = Options(spec);
      options.prefill = "f32";  // gives the same bits on every instruction set
      options.kernel = "scalar";
      Engine scalar(options);
      Session saved = scalar.NewSession();
      GreedyTokens(saved, Prompt(n_prompt), 9);
      ASSERT_EQ(saved.tokens().size(), saved.kv_len() + 1) << "the last token is not cached yet";
      const std::uint64_t n_bytes = saved.Save(Path());
      EXPECT_EQ(n_bytes, fs::file_size(Path()));

      options.kernel = "auto";
      Engine engine(options);
      Session never_saved = engine.NewSession();
      GreedyTokens(never_saved, Prompt(n_prompt), 9);
      Session loaded = engine.NewSession();
      loaded.Load(Path());
      EXPECT_EQ(std::vector(loaded.tokens().begin(), loaded.tokens().end()),
                std::vector(never_saved.tokens().begin(), never_saved.tokens().end()));
      EXPECT_EQ(loaded.kv_len(), never_saved.kv_len());
      EXPECT_EQ(loaded.kv().resident_bytes, never_saved.kv().resident_bytes);
      EXPECT_EQ(GreedyTokens(loaded, kSecondPrompt, 70), GreedyTokens(never_saved, kSecondPrompt, 70));
      EXPECT_TRUE(LogitsOf(loaded, Prompt(80), 64) == LogitsOf(never_saved, Prompt(80), 64));
    }
  }
}

TEST_F(SessionStateTest, AnEmptySessionAndAFullOneAreSessionsToo) {
  EngineOptions options = Options();
  options.ctx = 70;
  Engine engine(options);
  Session session = engine.NewSession();
  session.Save(Path("empty"));
  GreedyTokens(session, Prompt(50), 100);  // until the context is full
  EXPECT_EQ(session.kv_len(), 70u);
  session.Save(Path("full"));
  session.Load(Path("empty"));
  EXPECT_EQ(session.tokens().size(), 0u);
  EXPECT_EQ(session.kv().resident_bytes, 0u);
  Session fresh = engine.NewSession();
  EXPECT_EQ(GreedyTokens(session, Prompt(7), 5), GreedyTokens(fresh, Prompt(7), 5));
  session.Load(Path("full"));
  EXPECT_EQ(session.kv_len(), 70u);
  EXPECT_EQ(session.tokens().size(), 71u);
}

TEST_F(SessionStateTest, TokensThatATruncateLeftAreRunAfterLoading) {
  Engine engine(Options());
  Session session = engine.NewSession();
  GreedyTokens(session, Prompt(300), 5);
  session.Truncate(250);  // the packed cache cannot go back there: it starts anew
  ASSERT_LT(session.kv_len(), session.tokens().size());
  session.Save(Path());
  Session loaded = engine.NewSession();
  loaded.Load(Path());
  EXPECT_EQ(GreedyTokens(loaded, kSecondPrompt, 5), GreedyTokens(session, kSecondPrompt, 5));
}

TEST_F(SessionStateTest, WhatDoesNotFitIsRefusedAndTheSessionGoesOn) {
  SaveSome(Options());
  ExpectLoadRefused(Options("fp16"), ErrorCode::kInvalidArgument, "its method is");
  ExpectLoadRefused(Options("turboquant_rvq:seed=43"), ErrorCode::kInvalidArgument, "its method is");
  EngineOptions options = Options();
  options.ctx = 100;
  ExpectLoadRefused(options, ErrorCode::kInvalidArgument, "raise --ctx to 204");
  options = Options();
  Engine engine(options);
  options.kv_limit_bytes = engine.PredictResidentBytes(204);  // and 14 tokens are there
  ExpectLoadRefused(options, ErrorCode::kResourceExhausted, "--kv-limit");
  test::TinyModelOptions tiny;
  tiny.seed = 2;
  const TempModel other(tiny);
  options = Options();
  options.model_path = other.path();
  ExpectLoadRefused(options, ErrorCode::kInvalidArgument, "its model is");
  tiny.seed = 1;
  tiny.rope_base = 10001;
  const TempModel turned(tiny);
  options.model_path = turned.path();
  ExpectLoadRefused(options, ErrorCode::kInvalidArgument, "its model is");
  const std::string bytes = Slurp(Path());
  std::ofstream(Path(), std::ios::binary) << bytes.substr(0, bytes.size() / 2);
  ExpectLoadRefused(Options(), ErrorCode::kCorruptData, "truncated");
  std::ofstream(Path(), std::ios::binary) << "no state";
  ExpectLoadRefused(Options(), ErrorCode::kCorruptData, "not a saved state");
  fs::remove(Path());
  ExpectLoadRefused(Options(), ErrorCode::kNotFound, "No such file");
  fs::create_directory(Path());
  ExpectLoadRefused(Options(), ErrorCode::kInvalidArgument, "not a file");
}

TEST_F(SessionStateTest, AFailedSaveLeavesTheOldFileAndNoOther) {
  SaveSome(Options(), 5);
  const std::string old = Slurp(Path());
  Engine engine(Options("fp16"));
  Session session = engine.NewSession();
  GreedyTokens(session, Prompt(300), 5);
  signal(SIGXFSZ, SIG_IGN);  // a write past the limit fails as on a full disk
  rlimit limit = {};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small = {.rlim_cur = 20000, .rlim_max = limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  ExpectError(ErrorCode::kResourceExhausted, "make room", [&] { session.Save(Path()); });
  setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT_TRUE(Slurp(Path()) == old);
  EXPECT_EQ(FilesInFolder(), 1u);
  session.Save(Path());
  EXPECT_FALSE(Slurp(Path()) == old);
  EXPECT_EQ(FilesInFolder(), 1u);
}

TEST_F(SessionStateTest, OnlyFilesAreSavedTo) {
  Engine engine(Options());
  Session session = engine.NewSession();
  for (const auto& action : {std::function<void(const std::string&)>(&CheckSaveTarget),
                             std::function<void(const std::string&)>(
                                 [&](const std::string& path) { session.Save(path); })}) {
    ExpectError(ErrorCode::kNotFound, "No such file", [&] { action(Path("none/a.state")); });
    ExpectError(ErrorCode::kInvalidArgument, "not a file", [&] { action(folder_); });
    ExpectError(ErrorCode::kInvalidArgument, "not a file", [&] { action("/dev/null"); });
    ExpectError(ErrorCode::kInvalidArgument, "not a file", [&] { action(""); });
    ExpectError(ErrorCode::kInvalidArgument, "not a file", [&] { action(Path("new/")); });
  }
  CheckSaveTarget(Path("later"));
  EXPECT_EQ(FilesInFolder(), 0u);
}

TEST_F(SessionStateTest, ALinkStaysALinkAndTheModeStays) {
  SaveSome(Options(), 5);
  fs::permissions(Path(), fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("a.state", Path("link"));
  const auto size = fs::file_size(Path());
  Engine engine(Options());
  Session session = engine.NewSession();
  GreedyTokens(session, Prompt(100), 5);
  session.Save(Path("link"));
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  EXPECT_GT(fs::file_size(Path()), size);
  EXPECT_EQ(fs::status(Path()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(SessionStateTest, AModelFileThatChangedTiesNoState) {
  Engine engine(Options());
  Session session = engine.NewSession();
  session.Save(Path());
  const std::string bytes = Slurp(model_.path());
  fs::rename(model_.path(), Path("model"));
  std::ofstream(model_.path(), std::ios::binary) << bytes << "x";
  ExpectError(ErrorCode::kInvalidArgument, "has changed", [&] { session.Save(Path()); });
  ExpectError(ErrorCode::kInvalidArgument, "has changed", [&] { session.Load(Path()); });
}

}  // namespace
}  // namespace kvant

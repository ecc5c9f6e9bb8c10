// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// kvant calibrate from outside: a file is made, a run uses it, and what cannot be calibrated is refused.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/run_kvant.h"
#include "tests/support/tiny_model.h"

namespace kvant {
namespace {

using nlohmann::json;
using test::Kvant;
using test::Outcome;

class CalibrateCliTest : public testing::Test {
 protected:
  CalibrateCliTest() : folder_("calibrate_cli_" + std::to_string(getpid())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    test::WriteTinyModel(model_ = Path("tiny.gguf"), {});
    std::ofstream text(Path("text"));
    for (int i = 0; i < 60; ++i) text << "line " << i << " of a text to measure keys on\n";
  }
  ~CalibrateCliTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  Outcome Calibrate(std::vector<std::string> more) const {
    more.insert(more.begin(), "calibrate");
    more.insert(more.end(), {"-m", model_});
    return Kvant(more);
  }
  static void ExpectRefused(const Outcome& outcome, const std::string& says) {
    EXPECT_EQ(outcome.status, 2) << outcome.err;
    EXPECT_NE(outcome.err.find(says), std::string::npos) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }

  std::string folder_, model_;
};

TEST_F(CalibrateCliTest, ARunUsesTheFile) {
  const std::string file = Path("keys.profile");
  const Outcome made = Calibrate({"smooth", Path("text"), "-o", file, "--tokens", "300", "--json"});
  ASSERT_EQ(made.status, 0) << made.err;
  const json document = json::parse(made.out);
  EXPECT_EQ(document["tokens"], 296);
  EXPECT_EQ(document["path"], file);
  EXPECT_EQ(document["layers"].size(), 2u);
  for (const json& layer : document["layers"]) {
    EXPECT_GT(layer["lambda_min"].get<float>(), 0);
    EXPECT_LT(layer["lambda_min"].get<float>(), 1);  // the geometric mean of a head
    EXPECT_GT(layer["lambda_max"].get<float>(), 1);
  }
  const std::string spec = document["spec"];
  EXPECT_EQ(spec, "turboquant_rvq,profile=" + file);
  const Outcome run =
      Kvant({"run", "-m", model_, "--raw", "-p", std::string(600, 'x'), "-n", "8", "--kv", spec, "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(json::parse(run.out)["kv"]["spec"], spec);
  const Outcome inspect = Kvant({"inspect", "-m", model_, "--kv", spec, "--json"});
  ASSERT_EQ(inspect.status, 0) << inspect.err;
  EXPECT_EQ(json::parse(inspect.out)["methods"][0]["spec"], spec);

  const Outcome text = Calibrate({"smooth", Path("text"), "-o", file});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_NE(text.out.find("layer   1"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("--kv '" + spec + "'"), std::string::npos) << text.out;
}

TEST_F(CalibrateCliTest, RefusesInOneSentence) {
  for (const char* target : {"qfilters", "vecinfer", "all"}) {
    ExpectRefused(Calibrate({target, Path("text"), "-o", Path("a")}), "allowed: smooth");
  }
  ExpectRefused(Calibrate({"smooth", Path("none"), "-o", Path("a")}), "cannot read");
  ExpectRefused(Calibrate({"smooth", Path("text"), "-o", Path("no/a")}), "cannot save");
  ExpectRefused(Calibrate({"smooth", Path("text"), "-o", Path("a,b")}), "choose a path without");
  EXPECT_FALSE(std::filesystem::exists(Path("a")));
  ExpectRefused(Kvant({"run", "-m", model_, "-p", "x", "--kv", "turboquant_rvq,profile=" + Path("text")}),
                "not a profile");
}

}  // namespace
}  // namespace kvant

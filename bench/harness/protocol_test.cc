// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/protocol.h"

#include <gtest/gtest.h>

#include <fstream>

#include "bench/harness/arm_runner.h"
#include "bench/harness/embedded.h"
#include "kvant/error.h"

namespace kvant::bench {
namespace {

using nlohmann::json;

std::string MessageOf(const json& object) {
  try {
    ParseProtocol(object, "test");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Protocol, BuiltInFilesParseAndKeepTheRules) {
  ASSERT_GE(EmbeddedProtocols().size(), 2u);
  for (const EmbeddedFile& file : EmbeddedProtocols()) {
    const Protocol protocol = LoadProtocol(std::string(file.name));
    EXPECT_EQ(protocol.name, file.name);
    // A published protocol keeps the steps that were published.
    if (!protocol.published) {
      EXPECT_GE(protocol.decode_steps, kMinDecodeSteps);
    }
    EXPECT_GE(protocol.warmup_rounds, 1u);
    EXPECT_GE(protocol.lengths.size(), 2u);
    EXPECT_EQ(json(ProtocolToJson(protocol)), json::parse(file.content));
  }
  const Protocol honest = LoadProtocol("honest");
  EXPECT_TRUE(honest.contention.enforce);
  EXPECT_EQ(honest.lengths.front(), 231u);
  EXPECT_EQ(honest.full_lengths.back(), 32000u);
  EXPECT_LE(honest.time_limit_s, 300);
}

TEST(Protocol, UnknownMissingAndMistypedKeysAreNamed) {
  const json good = ProtocolToJson(LoadProtocol("honest"));
  json bad = good;
  bad["contention"]["drift_limits"] = 1;
  EXPECT_NE(MessageOf(bad).find("unknown key \"drift_limits\""), std::string::npos);
  bad = good;
  bad.erase("rounds");
  EXPECT_NE(MessageOf(bad).find("lacks the key \"rounds\""), std::string::npos);
  bad = good;
  bad["rounds"] = "four";
  EXPECT_NE(MessageOf(bad).find("\"rounds\": \"four\""), std::string::npos);
  bad = good;
  bad["lengths"] = {1024, 231};
  EXPECT_NE(MessageOf(bad).find("ascending"), std::string::npos);
  bad = good;
  bad["lengths"] = json::array();
  EXPECT_NE(MessageOf(bad), "");
  bad = good;
  bad["mode"] = "fast";
  EXPECT_NE(MessageOf(bad).find("honest or published"), std::string::npos);
  bad = good;
  bad["prefill"] = "twice";
  EXPECT_NE(MessageOf(bad).find("once or every run"), std::string::npos);
  bad["prefill"] = "every run";
  EXPECT_FALSE(ParseProtocol(bad, "test").prefill_once);
  bad["prefill"] = "once";
  EXPECT_TRUE(StyleOf(ParseProtocol(bad, "test")).prefill_once);
  bad = good;
  bad["published"] = json::object();  // without the mode that reads it
  EXPECT_NE(MessageOf(bad).find("unknown key \"published\""), std::string::npos);
  bad = good;
  bad["rounds"] = -1;
  EXPECT_NE(MessageOf(bad), "");
  bad = good;
  bad["degenerate"]["max_period"] = 40;  // more than half of the window
  EXPECT_NE(MessageOf(bad), "");
  EXPECT_NE(MessageOf(json::array()), "");
  EXPECT_EQ(MessageOf(good), "");
}

TEST(Protocol, LoadsFilesAndRefusesWhatItCannotRun) {
  json object = ProtocolToJson(LoadProtocol("honest"));
  object["name"] = "mine";
  std::ofstream("mine.json") << object.dump();
  EXPECT_EQ(LoadProtocol("mine.json").name, "mine");
  std::ofstream("broken.json") << "{\"name\":";
  const auto code_of = [](const std::string& name) {
    try {
      LoadProtocol(name);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kInternal;
  };
  EXPECT_EQ(code_of("broken.json"), ErrorCode::kCorruptData);
  EXPECT_EQ(code_of("absent.json"), ErrorCode::kNotFound);
}

TEST(Protocol, TheTextIsLongPlainEnglish) {
  const std::string_view text = EmbeddedText();
  EXPECT_EQ(text.size(), 167140u);
  EXPECT_EQ(text.substr(0, 9), "Chapter 1");
  for (const char c : text) ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~'));
}

TEST(Arms, TheFirstSpecRunsTwice) {
  const std::vector<Arm> arms = MakeArms({"fp16", "kivi:bits=4"});
  ASSERT_EQ(arms.size(), 3u);
  EXPECT_EQ(arms[0].name, "fp16/a");
  EXPECT_EQ(arms[1].name, "fp16/b");
  EXPECT_EQ(arms[0].spec, arms[1].spec);
  EXPECT_TRUE(arms[0].is_baseline && arms[1].is_baseline);
  EXPECT_EQ(arms[2].name, "kivi:bits=4");
  EXPECT_FALSE(arms[2].is_baseline);
  EXPECT_THROW(MakeArms({"fp16", "fp16"}), Error);
  EXPECT_THROW(MakeArms({"fp16", ""}), Error);
}

}  // namespace
}  // namespace kvant::bench

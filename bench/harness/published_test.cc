// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Mode "published": prompts, arms, byte ratios, the arithmetic of its table, checks that can fail.

#include "bench/harness/published.h"

#include <gtest/gtest.h>

#include "bench/harness/prompt.h"
#include "bench/harness/test_fakes.h"
#include "kv/registry.h"
#include "kvant/error.h"

namespace kvant::bench {
namespace {

using nlohmann::json;
using test::CountingTokens;
using test::FakePublishedBench;
using test::FindCheck;
using test::FindRow;

std::string MessageOf(const json& object) {
  try {
    ParseProtocol(object, "test");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(RepeatedPrompt, IsThePassageCutAndTheInstruction) {
  const std::vector<TokenId> lead = {1}, passage = {10, 11, 12}, instruction = {90, 91};
  EXPECT_EQ(RepeatPassage(lead, passage, instruction, 8),
            (std::vector<TokenId>{1, 10, 11, 12, 10, 11, 90, 91}));
  EXPECT_EQ(RepeatPassage({}, passage, instruction, 3), (std::vector<TokenId>{10, 90, 91}));
  for (const std::size_t length : {231u, 2238u}) {
    const std::vector<TokenId> prompt = RepeatPassage(lead, passage, instruction, length);
    ASSERT_EQ(prompt.size(), length);
    for (std::size_t i = 1; i + 2 < length; ++i) ASSERT_EQ(prompt[i], 10 + (i - 1) % 3);
  }
  // A prompt that holds no token of the passage is refused with the least that is possible.
  try {
    RepeatPassage(lead, passage, instruction, 3);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("at least 4"), std::string::npos) << error.what();
  }
}

TEST(PublishedProtocol, IsThePublishedOne) {
  const Protocol protocol = LoadProtocol("published");
  ASSERT_TRUE(protocol.published.has_value());
  EXPECT_EQ(protocol.lengths, (std::vector<std::size_t>{231, 2238}));
  EXPECT_EQ(protocol.rounds, 5u);
  EXPECT_EQ(protocol.warmup_rounds, 1u);
  EXPECT_EQ(protocol.decode_steps + 1, 120u);
  EXPECT_TRUE(protocol.contention.enforce);
  EXPECT_EQ(protocol.published->tables[0].arms, (std::vector<std::string>{"fp16", "off", "on"}));
  EXPECT_EQ(protocol.published->figures.size(), 6u);
  EXPECT_TRUE(StyleOf(protocol).stop_at_end);
  EXPECT_TRUE(StyleOf(protocol).repeated.has_value());
  EXPECT_FALSE(StyleOf(LoadProtocol("honest")).stop_at_end);
  // The published percentages follow from the published medians within a rounded digit.
  for (const PublishedFigure& figure : protocol.published->figures) {
    const double fp16 = figure.prompt == 231 ? 17.02 : 5.94;
    EXPECT_NEAR(figure.against_baseline, figure.tok_s / fp16, 0.001);
  }
}

TEST(PublishedProtocol, BadPartsAreNamed) {
  const json good = ProtocolToJson(LoadProtocol("published"));
  EXPECT_EQ(MessageOf(good), "");
  json bad = good;
  bad["published"]["arm_names"] = {"fp16", "off", "on"};
  EXPECT_NE(MessageOf(bad), "");
  bad = good;
  bad["published"]["arm_names"][1] = "on";
  EXPECT_NE(MessageOf(bad).find("\"on\""), std::string::npos);
  bad = good;
  bad["published"]["tables"][0]["arms"][1] = "off2";
  EXPECT_NE(MessageOf(bad).find("\"off2\""), std::string::npos);
  bad = good;
  bad["published"]["same_tokens"]["x"] = {"fp16", "gone"};
  EXPECT_NE(MessageOf(bad).find("\"gone\""), std::string::npos);
  bad = good;
  bad["published"]["figures"]["rows"][0]["tok_s_min"] = 99;
  EXPECT_NE(MessageOf(bad).find("tok_s_min"), std::string::npos);
  bad = good;
  bad["published"]["prompt"].erase("instruction");
  EXPECT_NE(MessageOf(bad).find("instruction"), std::string::npos);
  bad = good;
  bad["published"]["extra"] = 1;
  EXPECT_NE(MessageOf(bad).find("unknown key \"extra\""), std::string::npos);
  bad = good;
  bad.erase("mode");
  EXPECT_NE(MessageOf(bad).find("unknown key \"published\""), std::string::npos);
}

std::vector<std::string> NamesOf(const std::vector<Arm>& arms) {
  std::vector<std::string> names;
  for (const Arm& arm : arms) names.push_back(arm.name);
  return names;
}

TEST(PublishedArms, HaveTheProtocolsNamesAndNoTwin) {
  const PublishedPart part = *LoadProtocol("published").published;
  const std::vector<std::string> specs = {"fp16", "a", "b", "c"};
  PublishedPart own = part;
  const std::vector<Arm> arms = MakePublishedArms(own, specs, {}, false);
  EXPECT_EQ(NamesOf(arms), part.arm_names);
  EXPECT_EQ(arms[1].spec, "a");
  EXPECT_TRUE(arms[0].is_baseline);
  EXPECT_FALSE(arms[1].is_baseline);

  // Added arms join the last table; one that is there already keeps its name.
  own = part;
  EXPECT_EQ(NamesOf(MakePublishedArms(own, specs, {"d", "a"}, false)),
            (std::vector<std::string>{"fp16", "off", "on", part.arm_names[3], "d"}));
  EXPECT_EQ(own.tables[1].arms, (std::vector<std::string>{"fp16", part.arm_names[3], "d", "off"}));
  EXPECT_EQ(own.tables[0].arms, part.tables[0].arms);

  // Replacing: the default's arm is in no table any more, so it does not run.
  own = part;
  EXPECT_EQ(NamesOf(MakePublishedArms(own, specs, {"d"}, true)),
            (std::vector<std::string>{"fp16", "off", "on", "d"}));
  EXPECT_EQ(own.arm_names, (std::vector<std::string>{"fp16", "off", "on", "d"}));
  EXPECT_EQ(own.tables[1].arms, (std::vector<std::string>{"fp16", "d"}));
  EXPECT_EQ(own.same_tokens.size(), 1u);

  // A pair of which one arm is gone is not compared.
  own = part;
  own.tables.erase(own.tables.begin());
  MakePublishedArms(own, specs, {"d"}, true);
  EXPECT_TRUE(own.same_tokens.empty());

  own = part;
  EXPECT_THROW(MakePublishedArms(own, {"fp16", "a", "a", "c"}, {}, false), Error);
}

TEST(KvSides, BothSidesAddUpToWhatIsAllocated) {
  CacheGeometry geometry{.n_layer = 2, .n_kv_head = 3, .heads_per_kv = 3, .head_dim = 64};
  geometry.rope = std::make_shared<const RopeGeometry>(
      RopeGeometry{.frequency = std::vector<double>(32, 0.01), .adjacent_pairs = true});
  std::vector<std::string> specs = {"bf16", "k=bf16,v=fp16,window=128", "k=bf16,sink=4",
                                    "fp16,layers=0:k=bf16"};
  for (const CodecRecord* codec : Codecs()) {
    for (const PresetInfo& preset : codec->presets) specs.emplace_back(preset.name);
  }
  for (const std::string& spec : specs) {
    const Method method(ParseMethodSpec(spec), geometry);
    const Method fp16(ParseMethodSpec("fp16"), geometry);
    for (const std::size_t kv_len : {1u, 63u, 64u, 65u, 231u, 350u, 2357u}) {
      const KvSides sides = SidesOf(method, kv_len);
      EXPECT_EQ(sides.key_resident + sides.value_resident, method.Predict(kv_len).resident) << spec;
      EXPECT_GE(sides.key_resident, method.ResidentBytes(Side::kKey, kv_len)) << spec;
      EXPECT_EQ(sides.fp16_key_resident + sides.fp16_value_resident, fp16.Predict(kv_len).resident);
      EXPECT_EQ(sides.fp16_key_vector, 128);
    }
  }
  // By hand: 2 layers, 3 heads, 65 tokens are two blocks of 64 rows of 64 half floats.
  EXPECT_EQ(SidesOf(Method(ParseMethodSpec("fp16"), geometry), 65).key_resident,
            2u * 3 * 2 * 64 * 128);
}

TEST(KvSides, RatiosAreFp16BytesByTheArms) {
  // One layer and head of 128 at 320 tokens: 256 packed, an open block of 64 exact.
  KvSides sides;
  sides.kv_len = 320;
  sides.fp16_key_vector = 256;
  sides.packed_key_vector = 66;
  sides.key_resident = 256 * 66 + 64 * 256;
  sides.value_resident = 320 * 256;
  sides.fp16_key_resident = sides.fp16_value_resident = 320 * 256;
  const json ratios = RatiosToJson(sides, sides.key_resident + sides.value_resident);
  EXPECT_NEAR(ratios["key_ratio_published"].get<double>(), 3.8788, 1e-4);
  EXPECT_NEAR(ratios["key_ratio_resident"].get<double>(), 81920.0 / 33280, 1e-12);
  EXPECT_NEAR(ratios["kv_ratio_resident"].get<double>(), 163840.0 / 115200, 1e-12);
  EXPECT_EQ(ratios["resident_bytes"], 115200);
  const json unknown = RatiosToJson({}, 0);
  EXPECT_TRUE(unknown["key_ratio_published"].is_null());
  EXPECT_TRUE(unknown["kv_ratio_resident"].is_null());
}

TEST(PublishedRun, RunsItsRoundsWithoutRoundingThemUp) {
  FakePublishedBench bench;
  const json result = bench.Run();
  EXPECT_EQ(bench.measurements.rounds, 5u);
  EXPECT_EQ(bench.measurements.runs.size(), 5u * 4 * 2);
  EXPECT_EQ(bench.runner.log.size(), 6u * 4 * 2);  // one discarded warm-up of each
  EXPECT_EQ(result["protocol"]["mode"], "published");
  EXPECT_EQ(result["verdict"]["status"], "result") << result["verdict"].dump();
  EXPECT_TRUE(result["fits"].empty());
  EXPECT_TRUE(ValidateResult(result).empty()) << ValidateResult(result)[0];
  // Each arm stands first in some round, and a round holds every arm.
  std::set<std::size_t> first;
  for (const TimedRun& run : bench.measurements.runs) {
    if (run.place == 0 && run.length == 231) first.insert(run.arm);
  }
  EXPECT_EQ(first.size(), 4u);
}

TEST(PublishedRun, TheTableIsPlainArithmetic) {
  FakePublishedBench bench;
  // Prefill 1 ms a token, first token 1 ms, steps of 10 ms: 120 tokens at 231 take
  // .231 + .001 + 119 * .01 s; round 0 of "on" takes twice that.
  for (const char* arm : {"fp16", "off", "on"}) bench.runner.costs[arm].slope_s = 0;
  bench.runner.costs["off"].intercept_s = 0.02;
  std::size_t n_on = 0;
  bench.runner.factor = [&n_on](const Arm& arm, std::size_t) {
    return arm.name == "on" && ++n_on == 3 ? 2.0 : 1.0;  // after one warm-up of each length
  };
  const json result = bench.Run();
  const json fp16 = FindRow(result, "fp16", 231, "generate");
  const json off = FindRow(result, "off", 231, "generate");
  const json on = FindRow(result, "on", 231, "generate");
  const double fp16_s = 0.231 + 0.001 + 119 * 0.010;
  EXPECT_NEAR(fp16["median"].get<double>(), 120 / fp16_s, 1e-9);
  EXPECT_NEAR(off["median"].get<double>(), 120 / (0.232 + 119 * 0.020), 1e-9);
  EXPECT_NEAR(off["against_baseline"]["ratio"].get<double>(), fp16_s / (0.232 + 119 * 0.020), 1e-9);
  EXPECT_NEAR(on["median"].get<double>(), 120 / fp16_s, 1e-9);
  EXPECT_NEAR(on["min"].get<double>(), 120 / (2 * 0.231 + 0.001 + 2 * 119 * 0.010), 1e-9);
  EXPECT_NEAR(on["max"].get<double>(), 120 / fp16_s, 1e-9);
  EXPECT_EQ(on["samples"].size(), 5u);
  EXPECT_EQ(on["new_tokens"], json({120, 120, 120, 120, 120}));
  EXPECT_NEAR(FindRow(result, "off", 231, "decode")["median"].get<double>(), 50, 1e-9);
  EXPECT_NEAR(FindRow(result, "off", 231, "decode")["against_baseline"]["ratio"].get<double>(), 0.5,
              1e-9);
  EXPECT_NEAR(FindRow(result, "fp16", 2238, "generate")["median"].get<double>(),
              120 / (2.238 + 0.001 + 1.190), 1e-9);
}

TEST(PublishedRun, PeaksAreHeldAgainstTheOneBaseline) {
  FakePublishedBench bench;
  bench.peak_bytes = {{"fp16", 100'000'000}, {"off", 101'300'000}};
  const json memory = bench.Run()["memory"];
  ASSERT_EQ(memory.size(), 8u);
  EXPECT_TRUE(memory[0]["against_baseline"].is_null());
  EXPECT_NEAR(memory[1]["against_baseline"]["ratio"].get<double>(), 1.013, 1e-12);
  EXPECT_EQ(memory[1]["peak"], 101'300'000);
}

TEST(PublishedRun, AnAnswerOfOneTokenHasNoDecodeNumber) {
  FakePublishedBench bench;
  bench.runner.costs["on"].tokens =
      bench.runner.costs["off"].tokens = [](std::size_t, std::size_t) { return CountingTokens(1); };
  const json result = bench.Run();
  EXPECT_TRUE(FindRow(result, "on", 231, "decode").is_null());
  EXPECT_EQ(FindRow(result, "on", 231, "generate")["new_tokens"][0], 1);
  const json check = FindCheck(result, "new tokens");
  EXPECT_EQ(check["verdict"], "info");
  EXPECT_NE(check["detail"].get<std::string>().find("on at 231 tokens gave 1, the baseline 120"),
            std::string::npos);
  EXPECT_TRUE(ValidateResult(result).empty());
}

void ExpectFailed(const json& result, const std::string& name, const std::string& part) {
  const json check = FindCheck(result, name);
  ASSERT_FALSE(check.is_null()) << name;
  EXPECT_EQ(check["verdict"], "fail") << check.dump();
  EXPECT_NE(check["detail"].get<std::string>().find(part), std::string::npos) << check.dump();
  EXPECT_EQ(result["verdict"]["status"], "not a result");
}

constexpr const char* kSame = "identical tokens, fused encode off and on";

TEST(PublishedChecks, OneDifferentTokenFailsTheIdentity) {
  FakePublishedBench bench;
  EXPECT_EQ(FindCheck(bench.Run(), kSame)["verdict"], "pass");
  bench.runner.costs["on"].tokens = [](std::size_t n, std::size_t) {
    std::vector<TokenId> tokens = CountingTokens(n);
    tokens[119] = 7;
    return tokens;
  };
  const json result = bench.Run();
  ExpectFailed(result, kSame, "off and on at 231 tokens differ from token 119 on");
  EXPECT_EQ(FindRow(result, "on", 231, "generate")["first_different_token"], 119);
  EXPECT_TRUE(FindRow(result, "off", 231, "generate")["first_different_token"].is_null());
}

TEST(PublishedChecks, AShorterAnswerIsADifferentOne) {
  FakePublishedBench bench;
  bench.runner.costs["on"].tokens = [](std::size_t, std::size_t) { return CountingTokens(61); };
  const json result = bench.Run();
  ExpectFailed(result, kSame, "differ from token 61 on");
  EXPECT_EQ(FindRow(result, "on", 231, "generate")["first_different_token"], 61);
}

TEST(PublishedChecks, ADifferenceFromFp16IsForInformation) {
  FakePublishedBench bench;
  for (const char* arm : {"off", "on"}) {
    bench.runner.costs[arm].tokens = [](std::size_t n, std::size_t) {
      std::vector<TokenId> tokens = CountingTokens(n);
      tokens[5] = 7;
      return tokens;
    };
  }
  const json result = bench.Run();
  const json check = FindCheck(result, "first different token");
  EXPECT_EQ(check["verdict"], "info");
  EXPECT_NE(check["detail"].get<std::string>().find("off at 231: token 5"), std::string::npos);
  EXPECT_EQ(result["verdict"]["status"], "result");
}

TEST(PublishedChecks, ContentionCanFail) {
  FakePublishedBench bench;
  bench.probe.others_cpus = 2;
  ExpectFailed(bench.Run(), "contention", "displaced");
}

TEST(PublishedChecks, AMethodThatWasNotAppliedFails) {
  FakePublishedBench bench;
  bench.runner.costs["on"].predicted_packed_tokens = 128;
  ExpectFailed(bench.Run(), "packed tokens", "on at");
}

TEST(PublishedChecks, OtherBytesThanPredictedFail) {
  FakePublishedBench bench;
  bench.runner.costs["on"].sides.key_resident = 1000;
  bench.runner.costs["on"].resident_excess = 64;
  ExpectFailed(bench.Run(), "resident bytes", "holds 1064 bytes where the method predicts 1000");
}

TEST(PublishedChecks, RepeatedTextIsFlaggedAndFailsNothing) {
  FakePublishedBench bench;
  bench.runner.costs[bench.config.arms[3].name].tokens = [](std::size_t n, std::size_t) {
    return std::vector<TokenId>(n, 3);
  };
  const json result = bench.Run();
  EXPECT_EQ(FindCheck(result, "degenerate output")["verdict"], "info");
  EXPECT_EQ(FindRow(result, bench.config.arms[3].name, 231, "generate")["flags"].size(), 1u);
  EXPECT_EQ(result["verdict"]["status"], "result");
}

TEST(PublishedResult, ValidationFindsMissingParts) {
  FakePublishedBench bench;
  const json good = bench.Run();
  json bad = good;
  bad["protocol"].erase("published");
  EXPECT_FALSE(ValidateResult(bad).empty());
  bad = good;
  bad["rows"][0].erase("new_tokens");
  ASSERT_EQ(ValidateResult(bad).size(), 1u);
  EXPECT_NE(ValidateResult(bad)[0].find("new_tokens"), std::string::npos);
  bad = good;
  bad["rows"][0]["ratios"].erase("kv_ratio_resident");
  ASSERT_EQ(ValidateResult(bad).size(), 1u);
  EXPECT_NE(ValidateResult(bad)[0].find("kv_ratio_resident"), std::string::npos);
  bad = good;
  bad["protocol"]["published"]["figures"]["rows"][0]["tok_s"] = "fast";
  EXPECT_EQ(ValidateResult(bad).size(), 1u);
}

}  // namespace
}  // namespace kvant::bench

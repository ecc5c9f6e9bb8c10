// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What options choose of a protocol, and that the printed command chooses the same.

#include "apps/kvant/bench_choices.h"

#include <gtest/gtest.h>

#include "kvant/error.h"

namespace kvant::cli {
namespace {

class Notes : public bench::ProgressSink {
 public:
  void Update(double, double, const std::string&) override {}
  void Note(const std::string& sentence) override { notes.push_back(sentence); }
  std::vector<std::string> notes;
};

std::vector<std::string> Specs(const std::vector<bench::Arm>& arms) {
  std::vector<std::string> specs;
  for (const bench::Arm& arm : arms) specs.push_back(arm.spec);
  return specs;
}

using Texts = std::vector<std::string>;

TEST(BenchChoices, ArmsReplaceTheMethodsAndKvAddsOne) {
  bench::Protocol protocol = bench::LoadProtocol("honest");
  protocol.arms = {"fp16", "bf16"};
  BenchOptions options;
  EXPECT_EQ(Specs(ChooseArms(options, protocol)), (Texts{"fp16", "fp16", "bf16"}));
  options.has_kv = true;
  options.common.kv = "k=bf16,v=fp16";
  EXPECT_EQ(Specs(ChooseArms(options, protocol)).size(), 4u);
  options.common.kv = "bf16";  // there already
  EXPECT_EQ(Specs(ChooseArms(options, protocol)).size(), 3u);
  options.has_kv = false;
  options.arms = " fp16 ; fp16,window=64 ;";
  const Texts specs = Specs(ChooseArms(options, protocol));
  ASSERT_EQ(specs.size(), 3u);
  EXPECT_NE(specs[2].find("window=64"), std::string::npos);
  options.arms = "fp17";
  EXPECT_THROW(ChooseArms(options, protocol), Error);
}

TEST(BenchChoices, InModePublishedTheyChangeTheLastTable) {
  bench::Protocol protocol = bench::LoadProtocol("published");
  protocol.arms = {"fp16", "bf16", "fp16,window=64", "fp16,window=128"};
  bench::Protocol replaced = protocol;
  BenchOptions options;
  options.arms = "fp16,window=192";
  const std::vector<bench::Arm> arms = ChooseArms(options, replaced);
  ASSERT_EQ(arms.size(), 4u);
  EXPECT_EQ(arms[1].name, "off");
  EXPECT_EQ(replaced.published->tables[1].arms, (Texts{"fp16", arms[3].name}));
  EXPECT_EQ(replaced.published->tables[0].arms, protocol.published->tables[0].arms);
  options.arms.clear();
  options.has_kv = true;
  options.common.kv = "fp16,window=192";
  EXPECT_EQ(ChooseArms(options, protocol).size(), 5u);
  EXPECT_EQ(protocol.published->tables[1].arms.size(), 3u);
}

TEST(BenchChoices, LengthsAreRefusedOrLeftOut) {
  const bench::Protocol protocol = bench::LoadProtocol("published");
  Notes notes;
  BenchOptions options;
  EXPECT_EQ(ChooseLengths(options, protocol, 8000, notes), protocol.lengths);
  EXPECT_TRUE(notes.notes.empty());
  EXPECT_EQ(ChooseLengths(options, protocol, 1000, notes), std::vector<std::size_t>{231});
  EXPECT_EQ(notes.notes.size(), 1u);
  EXPECT_THROW(ChooseLengths(options, protocol, 100, notes), Error);
  options.lengths = {64, 32, 64};
  EXPECT_EQ(ChooseLengths(options, protocol, 100, notes), (std::vector<std::size_t>{32, 64}));
  EXPECT_THROW(ChooseLengths(options, protocol, 63, notes), Error);
}

std::string CommandOf(const BenchOptions& options, const std::string& protocol_name,
                      const Texts& protocol_arms) {
  bench::BenchConfig config;
  config.protocol = bench::LoadProtocol(protocol_name);
  config.protocol.arms = protocol_arms;
  config.arms = ChooseArms(options, config.protocol);
  bench::Measurements measured;
  measured.lengths = {231, 1024};
  measured.rounds = 6;
  return ReproduceCommand(options, config, measured, 2);
}

TEST(BenchChoices, TheCommandChoosesTheSameAgain) {
  BenchOptions options;
  options.common.model = "a model.gguf";
  options.protocol = "honest";
  EXPECT_EQ(CommandOf(options, "honest", {"fp16", "bf16"}),
            "kvant bench -m 'a model.gguf' --protocol honest --lengths 231,1024 --rounds 6 --arms "
            "bf16 --threads 2 --kernel auto --prefill auto --seed 42");
  // The baseline alone, although the protocol has a method.
  options.arms = "fp16";
  EXPECT_NE(CommandOf(options, "honest", {"fp16", "bf16"}).find("--arms fp16 "), std::string::npos);
  options.arms.clear();
  EXPECT_EQ(CommandOf(options, "honest", {"fp16"}).find("--arms"), std::string::npos);
  // The published protocol names its arms.
  const Texts arms = {"fp16", "bf16", "fp16,window=64", "fp16,window=128"};
  options.protocol = "published";
  EXPECT_EQ(CommandOf(options, "published", arms).find("--arms"), std::string::npos);
  options.has_kv = true;
  options.common.kv = "fp16,window=192";
  EXPECT_NE(CommandOf(options, "published", arms).find(" --kv fp16,window=192 "),
            std::string::npos);
  options.arms = "fp16,window=256";  // then --kv is one of the arms
  const std::string command = CommandOf(options, "published", arms);
  EXPECT_NE(command.find("window=256;"), std::string::npos) << command;
  EXPECT_EQ(command.find("--kv "), std::string::npos);
}

}  // namespace
}  // namespace kvant::cli

// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What a key transform costs, which version of it a block uses, and where it refuses.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "kv/transforms/key_transform.h"
#include "kvant/error.h"

namespace kvant {
namespace {

std::shared_ptr<const RopeGeometry> Rope(std::size_t n_pair) {
  RopeGeometry rope;
  rope.frequency.assign(n_pair, 0.5);
  return std::make_shared<const RopeGeometry>(rope);
}

KeyTransformSpec Spec(KeyMean mean, KeySmooth smooth, std::size_t refreeze_tokens = 0) {
  KeyTransformSpec spec;
  spec.mean = mean;
  spec.smooth = smooth;
  spec.refreeze_tokens = refreeze_tokens;
  return spec;
}

TEST(KeyTransformRules, VersionsOfRefreeze) {
  for (const std::size_t n : {64, 128, 192, 512, 4096}) {
    const KeyTransform transform(Spec(KeyMean::kRefreeze, KeySmooth::kOff, n), 64, nullptr);
    std::set<std::size_t> versions;
    EXPECT_EQ(transform.Versions(0), 0u);
    for (std::size_t block = 0; block < 300; ++block) {
      // A version holds for n tokens from its first position on, so for whole blocks.
      const std::size_t version = (64 * block) / n;
      EXPECT_EQ(version, (64 * block + 63) / n) << "a block would have two versions";
      ASSERT_EQ(transform.VersionOf(block), version) << "refreeze:" << n << ", block " << block;
      if (versions.insert(version).second) {
        ASSERT_EQ(transform.FirstBlock(version), block) << n;
      }
      ASSERT_EQ(transform.Versions(block + 1), versions.size()) << n << ", blocks " << block + 1;
    }
  }
}

TEST(KeyTransformRules, OtherMeansHaveOneVersion) {
  for (const KeyMean mean : {KeyMean::kOff, KeyMean::kBlock0, KeyMean::kRope}) {
    const KeyTransform transform(Spec(mean, KeySmooth::kSigma), 64, Rope(32));
    for (const std::size_t block : {0, 1, 100, 16383}) EXPECT_EQ(transform.VersionOf(block), 0u);
    EXPECT_EQ(transform.FirstBlock(0), 0u);
    EXPECT_EQ(transform.Versions(0), 0u);
    EXPECT_EQ(transform.Versions(1), 1u);
    EXPECT_EQ(transform.Versions(1000), 1u);
  }
  const KeyTransform none(Spec(KeyMean::kOff, KeySmooth::kOff), 64, nullptr);
  EXPECT_FALSE(none.active());
  EXPECT_EQ(none.Versions(1000), 0u);
  EXPECT_EQ(none.version_bytes(), 0u);
}

TEST(KeyTransformRules, Bytes) {
  const auto bytes = [](KeyMean mean, KeySmooth smooth) {
    const KeyTransform transform(Spec(mean, smooth, 64), 80, Rope(40));
    return std::pair(transform.energy_bytes(), transform.version_bytes());
  };
  using Bytes = std::pair<std::uint64_t, std::uint64_t>;
  EXPECT_EQ(bytes(KeyMean::kRope, KeySmooth::kBalancedPair), (Bytes{320, 640}));
  EXPECT_EQ(bytes(KeyMean::kOff, KeySmooth::kBalanced), (Bytes{320, 640}));
  EXPECT_EQ(bytes(KeyMean::kRefreeze, KeySmooth::kSigma), (Bytes{0, 640}));
  EXPECT_EQ(bytes(KeyMean::kBlock0, KeySmooth::kMax), (Bytes{0, 640}));
  EXPECT_EQ(bytes(KeyMean::kOff, KeySmooth::kOff), (Bytes{0, 0}));
}

void ExpectRefused(const KeyTransformSpec& spec, std::size_t head_dim,
                   const std::shared_ptr<const RopeGeometry>& rope, const std::string& says) {
  try {
    KeyTransform(spec, head_dim, rope);
    ADD_FAILURE() << KeyMeanText(spec) << ", " << KeySmoothText(spec.smooth) << " was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
  }
}

TEST(KeyTransformRules, WhatNeedsRopeIsRefusedWithoutIt) {
  const KeyTransformSpec turns = Spec(KeyMean::kRope, KeySmooth::kOff);
  const KeyTransformSpec pairs = Spec(KeyMean::kBlock0, KeySmooth::kBalancedPair);
  ExpectRefused(turns, 64, nullptr, "k_mean=rope needs keys that RoPE turns");
  ExpectRefused(pairs, 64, nullptr, "smooth=balanced_pair needs keys that RoPE turns");
  ExpectRefused(turns, 64, Rope(33), "use k_mean=block0 and smooth=balanced");  // 66 channels of 64
  ExpectRefused(pairs, 64, Rope(33), "use k_mean=block0 and smooth=balanced");
  EXPECT_NO_THROW(KeyTransform(turns, 64, Rope(32)));
  EXPECT_NO_THROW(KeyTransform(turns, 64, Rope(1)));
  for (const KeySmooth smooth : {KeySmooth::kOff, KeySmooth::kBalanced, KeySmooth::kSigma, KeySmooth::kMax}) {
    EXPECT_NO_THROW(KeyTransform(Spec(KeyMean::kBlock0, smooth), 64, nullptr));
    EXPECT_NO_THROW(KeyTransform(Spec(KeyMean::kOff, smooth), 64, nullptr));
  }
}

TEST(KeyTransformRules, AHeadDimThatIsTooLargeIsRefused) {
  ExpectRefused(Spec(KeyMean::kBlock0, KeySmooth::kOff), 1040, nullptr, "head_dim of at most 1024, not 1040");
  EXPECT_NO_THROW(KeyTransform(Spec(KeyMean::kBlock0, KeySmooth::kOff), 1024, nullptr));
}

TEST(KeyTransformRules, Texts) {
  EXPECT_EQ(KeyMeanText(Spec(KeyMean::kOff, KeySmooth::kOff)), "off");
  EXPECT_EQ(KeyMeanText(Spec(KeyMean::kBlock0, KeySmooth::kOff)), "block0");
  EXPECT_EQ(KeyMeanText(Spec(KeyMean::kRefreeze, KeySmooth::kOff, 512)), "refreeze:512");
  EXPECT_EQ(KeyMeanText(Spec(KeyMean::kRope, KeySmooth::kOff)), "rope");
  EXPECT_EQ(KeySmoothText(KeySmooth::kOff), "off");
  EXPECT_EQ(KeySmoothText(KeySmooth::kBalanced), "balanced");
  EXPECT_EQ(KeySmoothText(KeySmooth::kBalancedPair), "balanced_pair");
  EXPECT_EQ(KeySmoothText(KeySmooth::kSigma), "sigma");
  EXPECT_EQ(KeySmoothText(KeySmooth::kMax), "max");
}

}  // namespace
}  // namespace kvant

// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Profiles of keys: the file gives back what was written and nothing else is taken for one; a cache that is
// told what it would have learned is the cache that learned it.
#include "kv/transforms/key_profile.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>

#include "base/hash.h"
#include "kvant/error.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/state_bytes.h"

namespace kvant {
namespace {

using test::KvRig;
using test::RandomSequence;

using Bytes = std::vector<std::byte>;

const CacheGeometry kGeometry = {
    .n_layer = 2, .n_kv_head = 2, .heads_per_kv = 2, .head_dim = 32, .rope = test::PartialRope()};
constexpr std::size_t kWindow = 64;
constexpr std::size_t kSink = 4;
constexpr std::size_t kTokens = 300;

KeyProfile SmallProfile() {
  KeyProfile profile = {.fingerprint = 0x0123456789abcdefu,
                        .n_tokens = 100,
                        .n_layer = 2,
                        .n_kv_head = 1,
                        .head_dim = 3,
                        .heads = {}};
  profile.heads.push_back({.spread = {1, 2, 3}, .max_abs = {4, 5, 6}, .query = {7, 8, 9}});
  profile.heads.push_back({.spread = {0, 0.5f, 1}, .max_abs = {10, 11, 12}, .query = {13, 1e-30f, 3e38f}});
  return profile;
}

void Write(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

// A file of this process that goes with the object.
struct ProfileFile {
  explicit ProfileFile(const KeyProfile& profile, const std::string& name = "a") {
    path = name + "_" + std::to_string(getpid()) + ".profile";
    Write(path, FormatKeyProfile(profile));
  }
  ~ProfileFile() { std::remove(path.c_str()); }
  std::string path;
};

void ExpectRefused(const Bytes& bytes, ErrorCode code, const std::string& says) {
  try {
    ParseKeyProfile(bytes, "a.profile");
    FAIL() << "accepted; should say " << says;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).rfind("a.profile: ", 0), 0u) << error.what();
  }
}

// A change with a checksum that agrees.
template <typename Number>
Bytes Changed(std::size_t at, Number number) {
  Bytes bytes = FormatKeyProfile(SmallProfile());
  std::memcpy(bytes.data() + at, &number, sizeof(number));
  const std::uint64_t checksum = Hash64Of(std::span(bytes).first(bytes.size() - 8));
  std::memcpy(bytes.data() + bytes.size() - 8, &checksum, sizeof(checksum));
  return bytes;
}

TEST(KeyProfile, RoundTrip) {
  const KeyProfile profile = SmallProfile();
  const ProfileFile file(profile);
  const KeyProfile read = LoadKeyProfile(file.path);
  EXPECT_EQ(read.fingerprint, profile.fingerprint);
  EXPECT_EQ(read.n_tokens, profile.n_tokens);
  EXPECT_EQ(read.n_layer, 2u);
  EXPECT_EQ(read.n_kv_head, 1u);
  EXPECT_EQ(read.head_dim, 3u);
  ASSERT_EQ(read.heads.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read.heads[i].spread, profile.heads[i].spread);
    EXPECT_EQ(read.heads[i].max_abs, profile.heads[i].max_abs);
    EXPECT_EQ(read.heads[i].query, profile.heads[i].query);
  }
  EXPECT_EQ(FormatKeyProfile(read), FormatKeyProfile(profile));
}

TEST(KeyProfile, EveryTruncationAndEveryBitFlipIsRefused) {
  const Bytes bytes = FormatKeyProfile(SmallProfile());
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_THROW(ParseKeyProfile(std::span(bytes).first(n), "a"), Error) << n << " bytes";
  }
  Bytes changed = bytes;
  changed.push_back(std::byte{0});
  EXPECT_THROW(ParseKeyProfile(changed, "a"), Error);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    changed = bytes;
    changed[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_THROW(ParseKeyProfile(changed, "a"), Error) << "bit " << bit;
  }
}

TEST(KeyProfile, WhatNoCalibrationWritesIsRefusedBySentence) {
  ExpectRefused(Changed(0, 'k'), ErrorCode::kCorruptData, "not a profile");
  ExpectRefused(Changed(8, std::uint32_t{2}), ErrorCode::kUnsupported, "version 2");
  for (const std::size_t at : {12, 16, 20}) {
    ExpectRefused(Changed(at, std::uint32_t{0}), ErrorCode::kCorruptData, "it says");
    ExpectRefused(Changed(at, std::uint32_t{0xffffffff}), ErrorCode::kCorruptData, "it says");
    ExpectRefused(Changed(at, std::uint32_t{65536}), ErrorCode::kCorruptData, "its header needs");
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float value : {-1.0f, std::nanf(""), kInfinity, -kInfinity}) {
    ExpectRefused(Changed(40, value), ErrorCode::kCorruptData, "not the size of a key");
    ExpectRefused(Changed(40 + 17 * 4, value), ErrorCode::kCorruptData, "not the size of a key");
  }
  Bytes damaged = FormatKeyProfile(SmallProfile());
  damaged.back() ^= std::byte{1};
  ExpectRefused(damaged, ErrorCode::kCorruptData, "checksum");
}

TEST(KeyProfile, FilesThatAreNoneAreNamed) {
  for (const auto& [path, code] : {std::pair("no/such.profile", ErrorCode::kNotFound),
                                   std::pair(".", ErrorCode::kInvalidArgument),
                                   std::pair("/dev/null", ErrorCode::kInvalidArgument)}) {
    try {
      LoadKeyProfile(path);
      FAIL() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    }
  }
}

TEST(KeyProfile, AMethodRefusesAnotherGeometry) {
  const ProfileFile file(SmallProfile());
  try {
    Method(ParseMethodSpec("turboquant_rvq,profile=" + file.path), kGeometry);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("head_dim 3"), std::string::npos) << error.what();
  }
}

// What a cache of this method learns from: rows and queries of [sink, 64 + window).
KeyProfile LearnedProfile(const std::string& spec, const RandomSequence& sequence) {
  const std::size_t n = kBlockTokens + kWindow;
  KvRig rig(spec + ",window=" + std::to_string(n), kGeometry, Isa::kScalar);
  KvCache cache = rig.NewCache();
  rig.Run(cache, sequence, n, n);
  KeyProfile profile = {.fingerprint = 7,
                        .n_tokens = n - kSink,
                        .n_layer = kGeometry.n_layer,
                        .n_kv_head = kGeometry.n_kv_head,
                        .head_dim = kGeometry.head_dim,
                        .heads = {}};
  for (std::size_t layer = 0; layer < kGeometry.n_layer; ++layer) {
    const LayerMethod& method = rig.method->layer(layer);
    for (std::size_t kv_head = 0; kv_head < kGeometry.n_kv_head; ++kv_head) {
      const std::vector<float> rows = cache.Rows(layer, kv_head, Side::kKey);
      const BlockRef& energy = cache.head(layer, kv_head).energy;
      const KeyTransform::FreezeArgs args = {
          .rows = rows.data() + kSink * kGeometry.head_dim,
          .n_rows = n - kSink,
          .position = kSink,
          .energy = energy ? reinterpret_cast<const float*>(energy.data()) : nullptr,
          .n_queries = (n - kSink) * kGeometry.heads_per_kv};
      std::vector<float> version(2 * kGeometry.head_dim);
      method.transform->Freeze(args, version.data());
      profile.heads.push_back(method.transform->Measure(args, version.data()));
    }
  }
  return profile;
}

class LearnedProfileTest : public testing::TestWithParam<std::string> {
 protected:
  std::string Spec() const {
    return "turboquant_rvq,sink=" + std::to_string(kSink) + "," + GetParam();
  }
  const RandomSequence sequence_{kGeometry, kTokens, 5};
};

TEST_P(LearnedProfileTest, GivesTheSameCache) {
  const ProfileFile file(LearnedProfile(Spec(), sequence_));
  const std::string window = ",window=" + std::to_string(kWindow);
  KvRig learning(Spec() + window, kGeometry, Isa::kScalar);
  KvRig told(Spec() + window + ",profile=" + file.path, kGeometry, Isa::kScalar);
  KvCache a = learning.NewCache();
  KvCache b = told.NewCache();
  EXPECT_EQ(learning.Run(a, sequence_, kTokens, 64), told.Run(b, sequence_, kTokens, 50));
  ASSERT_GT(b.packed_tokens(), 0u);
  for (std::size_t layer = 0; layer < kGeometry.n_layer; ++layer) {
    for (std::size_t kv_head = 0; kv_head < kGeometry.n_kv_head; ++kv_head) {
      const HeadTable& head = b.head(layer, kv_head);
      EXPECT_FALSE(head.energy);
      ASSERT_EQ(head.versions.size(), 1u);
      EXPECT_EQ(std::memcmp(head.version(0), a.head(layer, kv_head).version(0),
                            2 * kGeometry.head_dim * sizeof(float)),
                0);
    }
  }
  EXPECT_EQ(told.method->layer(0).energy_bytes(), 0u);
  EXPECT_EQ(b.resident_bytes(), told.method->Predict(kTokens).resident);
}

// The profile decides, not the rows: other statistics give another lambda.
TEST_P(LearnedProfileTest, IsWhatLambdaComesFrom) {
  KeyProfile profile = LearnedProfile(Spec(), sequence_);
  for (KeyStatistics& head : profile.heads) {
    for (std::size_t c = 0; c < 8; ++c) {
      for (std::vector<float>* values : {&head.spread, &head.max_abs}) (*values)[c] *= 16;
    }
  }
  const ProfileFile file(profile);
  const std::string window = ",window=" + std::to_string(kWindow);
  KvRig learning(Spec() + window, kGeometry, Isa::kScalar);
  KvRig told(Spec() + window + ",profile=" + file.path, kGeometry, Isa::kScalar);
  KvCache a = learning.NewCache();
  KvCache b = told.NewCache();
  learning.Run(a, sequence_, kTokens, 64);
  told.Run(b, sequence_, kTokens, 64);
  const std::size_t d = kGeometry.head_dim;
  const float* learned = a.head(0, 0).version(0) + d;
  const float* lambda = b.head(0, 0).version(0) + d;
  // Eight channels up by 4, then all down by the same factor: the ratio to a channel left alone is 4.
  EXPECT_NEAR(lambda[0] / learned[0] / (lambda[d - 1] / learned[d - 1]), 4.0, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Smooth, LearnedProfileTest,
                         testing::Values("k_mean=off,smooth=balanced", "k_mean=block0,smooth=sigma",
                                         "k_mean=rope,smooth=balanced", "k_mean=rope,smooth=max"));

TEST(KeyProfile, ThePairsOfTheDefaultAgreeToo) {
  const RandomSequence sequence(kGeometry, kTokens, 6);
  const std::string spec = "turboquant_rvq";
  const ProfileFile file(LearnedProfile(spec, sequence));
  KvRig learning(spec + ":window=64", kGeometry, Isa::kScalar);
  KvRig told(spec + ":window=64,profile=" + file.path, kGeometry, Isa::kScalar);
  KvCache a = learning.NewCache();
  KvCache b = told.NewCache();
  EXPECT_EQ(learning.Run(a, sequence, kTokens, 64), told.Run(b, sequence, kTokens, 64));
}

// A state goes with the contents of the profile, wherever its file lies.
TEST(KeyProfile, AStateNeedsTheSameProfile) {
  const RandomSequence sequence(kGeometry, kTokens, 8);
  KeyProfile profile = LearnedProfile("turboquant_rvq", sequence);
  const ProfileFile first(profile, "first"), moved(profile, "moved");
  profile.heads[3].spread[31] *= 2;
  const ProfileFile other(profile, "other");
  KvRig saving("turboquant_rvq,profile=" + first.path, kGeometry, Isa::kScalar);
  KvCache cache = saving.NewCache();
  saving.Run(cache, sequence, kTokens, 64);
  const test::StateBytes state = test::SaveToBytes(cache, test::CountingTokens(kTokens));
  KvRig same("turboquant_rvq,profile=" + moved.path, kGeometry, Isa::kScalar);
  const RestoredState restored = RestoreState(same.method, &same.pool, Isa::kScalar, test::ArgsFor(state));
  EXPECT_EQ(restored.cache.resident_bytes(), cache.resident_bytes());
  for (const std::string& spec : {"turboquant_rvq,profile=" + other.path, std::string("turboquant_rvq")}) {
    KvRig rig(spec, kGeometry, Isa::kScalar);
    EXPECT_THROW(RestoreState(rig.method, &rig.pool, Isa::kScalar, test::ArgsFor(state)), Error) << spec;
  }
}

}  // namespace
}  // namespace kvant

// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "kvant/error.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

using test::KvRig;
using test::RandomSequence;

const CacheGeometry kGeometry = {.n_layer = 2, .n_kv_head = 2, .heads_per_kv = 2, .head_dim = 32};

class CacheTest : public testing::TestWithParam<const char*> {
 protected:
  CacheTest()
      : sequence_(kGeometry, 500, test::TestSeed()),
        other_(kGeometry, 500, test::TestSeed() + 1),
        rig_(GetParam(), kGeometry, SupportedIsas().back()) {}

  // Outputs of a fresh cache over tokens [0, end): the truth that every history must reproduce.
  std::vector<float> Fresh(const RandomSequence& sequence, std::size_t end, std::size_t from) {
    KvCache cache = rig_.NewCache();
    rig_.Run(cache, sequence, from, 64, true);
    return rig_.Run(cache, sequence, end, 1, true);
  }

  RandomSequence sequence_, other_;
  KvRig rig_;
};

TEST_P(CacheTest, ResidentBytesEqualThePredictionAtEveryLength) {
  for (const std::size_t chunk : {std::size_t{1}, std::size_t{7}, std::size_t{100}}) {
    KvCache cache = rig_.NewCache();
    for (std::size_t end = chunk; end <= 500; end += chunk) {
      rig_.Run(cache, sequence_, end, chunk);
      const PredictedBytes predicted = rig_.method->Predict(end);
      ASSERT_EQ(cache.resident_bytes(), predicted.resident) << "length " << end;
      ASSERT_EQ(rig_.pool.resident_bytes(), predicted.resident) << "length " << end;
      ASSERT_EQ(cache.payload_bytes(), predicted.payload) << "length " << end;
      ASSERT_LE(predicted.payload, predicted.resident);
    }
  }
}

// A step pays for the blocks of few layers: of one, where there are 64 layers or less.
TEST(CachePacking, IsSpreadOverTheSteps) {
  const CacheGeometry deep = {.n_layer = 12, .n_kv_head = 2, .heads_per_kv = 1, .head_dim = 32};
  const RandomSequence sequence(deep, 600, test::TestSeed());
  for (const char* options :
       {"k_mean=block0,smooth=max,window=64", "k_mean=block0,smooth=max,window=256",
        "k_mean=off,smooth=off,window=64"}) {
    KvRig rig(std::string("turboquant_rvq,") + options, deep,
              SupportedIsas().back());
    KvCache cache = rig.NewCache();
    const auto packed_blocks = [&] {
      std::size_t n = 0;
      for (std::size_t i = 0; i < deep.n_layer; ++i) {
        for (std::size_t kv_head = 0; kv_head < deep.n_kv_head; ++kv_head) {
          for (const BlockEntry& entry : cache.head(i, kv_head).blocks) n += entry.packed ? 1 : 0;
        }
      }
      return n;
    };
    // The first block waits for the rows that the key transform learns from.
    const std::size_t first = 2 * kBlockTokens + rig.method->layer(0).window;
    rig.Run(cache, sequence, first, 64);
    std::size_t before = packed_blocks(), n_packing_steps = 0;
    for (std::size_t t = first + 1; t <= 600; ++t) {
      rig.Run(cache, sequence, t, 1);
      const std::size_t now = packed_blocks();
      EXPECT_LE(now - before, deep.n_kv_head) << options << ", step to " << t;
      n_packing_steps += now > before ? 1 : 0;
      before = now;
    }
    EXPECT_GE(n_packing_steps, (600 - first) / kBlockTokens * deep.n_layer) << options;
  }
}

TEST_P(CacheTest, AForkContinuesLikeAFreshRunAndLeavesItsOriginAlone) {
  for (const std::size_t at : {0, 1, 63, 64, 100, 128, 300}) {
    KvCache origin = rig_.NewCache();
    rig_.Run(origin, sequence_, at, 64, true);
    KvCache fork = origin.Fork();
    EXPECT_EQ(rig_.pool.resident_bytes(), rig_.method->Predict(at).resident) << "sharing is free";
    // The fork goes another way first; then the origin must not have noticed.
    rig_.Run(fork, other_, at + 70, 7, true);
    EXPECT_TRUE(rig_.Run(origin, sequence_, at + 70, 1, true) == Fresh(sequence_, at + 70, at)) << at;
  }
}

TEST_P(CacheTest, TruncateGivesWhatAFreshRunGives) {
  for (const std::size_t end : {65, 130, 300}) {
    for (const std::size_t to : {0, 1, 50, 64, 65, 120, 128, 129, 299}) {
      if (to >= end) continue;
      KvCache cache = rig_.NewCache();
      rig_.Run(cache, sequence_, end, 64, true);
      const std::size_t reached = cache.Truncate(to);
      ASSERT_LE(reached, to);
      ASSERT_EQ(cache.length(), reached);
      EXPECT_EQ(cache.resident_bytes(), rig_.method->Predict(reached).resident) << end << " to " << to;
      EXPECT_EQ(rig_.pool.resident_bytes(), cache.resident_bytes());
      // Other tokens follow, so that stale rows would show.
      KvCache fresh = rig_.NewCache();
      rig_.Run(fresh, sequence_, reached, 64, true);
      EXPECT_TRUE(rig_.Run(cache, other_, to + 80, 1, true) == rig_.Run(fresh, other_, to + 80, 1, true))
          << end << " to " << to << ", reached " << reached;
    }
  }
}

TEST_P(CacheTest, TruncateOfExactRowsGoesExactlyThere) {
  KvCache cache = rig_.NewCache();
  rig_.Run(cache, sequence_, 300, 64);
  // The open block and the window are exact, so going back a little is always exact.
  EXPECT_EQ(cache.Truncate(299), 299u);
  EXPECT_EQ(cache.Truncate(290), 290u);
  if (rig_.method->layer(0).identity && rig_.method->layer(1).identity) {
    EXPECT_EQ(cache.Truncate(17), 17u);
  }
}

TEST_P(CacheTest, ASnapshotIsReturnedToExactly) {
  for (const std::size_t at : {1, 64, 100, 193, 256}) {
    KvCache cache = rig_.NewCache();
    rig_.Run(cache, sequence_, at, 64, true);
    cache.Snapshot();
    cache.Snapshot();  // twice at one place is once
    EXPECT_EQ(cache.n_snapshots(), 1u);
    rig_.Run(cache, other_, at + 220, 33, true);
    ASSERT_EQ(cache.Truncate(at), at);
    EXPECT_TRUE(rig_.Run(cache, sequence_, at + 70, 1, true) == Fresh(sequence_, at + 70, at)) << at;
  }
}

TEST_P(CacheTest, TruncateFallsBackToTheLatestSnapshotBefore) {
  KvCache cache = rig_.NewCache();
  rig_.Run(cache, sequence_, 70, 64, true);
  cache.Snapshot();
  rig_.Run(cache, sequence_, 140, 64, true);
  cache.Snapshot();
  rig_.Run(cache, sequence_, 450, 64, true);
  const std::size_t reached = cache.Truncate(150);
  EXPECT_TRUE(reached == 150 || reached == 140) << reached;
  EXPECT_TRUE(rig_.Run(cache, sequence_, 220, 1, true) == Fresh(sequence_, 220, reached));
}

// Sharing costs the copy of the open block and what the step does not get back, not the whole past again.
TEST_P(CacheTest, AForkNeedsRoomForItsStepAlone) {
  for (const std::size_t at : {64, 100, 256, 320}) {
    std::uint64_t limit = rig_.method->PredictStepPeak(at, at + 1);
    for (std::size_t i = 0; i < kGeometry.n_layer; ++i) {
      const LayerMethod& layer = rig_.method->layer(i);
      limit += kGeometry.n_kv_head *
               (2 * layer.exact_block_bytes() + layer.packed_block_bytes() + layer.energy_bytes());
    }
    KvRig rig(GetParam(), kGeometry, SupportedIsas().back(), 1, limit);
    KvCache cache = rig.NewCache();
    rig.Run(cache, sequence_, at, 1);
    KvCache fork = cache.Fork();
    EXPECT_NO_THROW(fork.CheckRoom(1)) << at;
    EXPECT_NO_THROW(rig.Run(fork, sequence_, at + 1, 1)) << at;
  }
}

TEST_P(CacheTest, AHardLimitIsKeptAndAFailedStepChangesNothing) {
  const std::uint64_t limit = rig_.method->Predict(200).resident + 100;
  KvRig rig(GetParam(), kGeometry, SupportedIsas().back(), 1, limit);
  KvCache cache = rig.NewCache();
  std::size_t length = 0;
  try {
    for (; length < 500; ++length) rig.Run(cache, sequence_, length + 1, 1, true);
    FAIL() << "500 tokens fitted into the bytes of 200";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
  }
  cache.Rollback();
  EXPECT_LE(rig.pool.peak_bytes(), limit);
  EXPECT_EQ(cache.length(), length);
  EXPECT_EQ(cache.resident_bytes(), rig.method->Predict(length).resident);
  // Going back frees the room again.
  cache.Truncate(0);
  EXPECT_EQ(rig.pool.resident_bytes(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Specs, CacheTest,
                         testing::Values("fp16", "bf16", "k=bf16,v=bf16", "k=bf16,v=fp16,window=64",
                                         "k=bf16,v=bf16,window=128,sink=4", "fp16,layers=1:v=bf16",
                                         "turboquant_rvq,k_mean=block0,smooth=balanced",
                                         "turboquant_rvq,k_mean=off,smooth=max,window=0,sink=0",
                                         "turboquant_rvq_published",
                                         "turboquant_rvq_published,layers=0:k=fp16",
                                         "turboquant_mse:bits=3,k_mean=refreeze:64,smooth=sigma,window=64",
                                         "k=fp16,v=turboquant_mse:bits=1,sink=64"));

struct BadValue {
  const char* spec;
  float value;
};

TEST(CacheErrors, AValueThatTheTypeCannotHoldIsNamedWithLayerHeadAndToken) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const BadValue bad : {BadValue{"fp16", 70000.0f}, BadValue{"fp16", kInfinity},
                             BadValue{"fp16", -kInfinity}, BadValue{"fp16", NAN},
                             BadValue{"bf16", kInfinity}, BadValue{"bf16", NAN},
                             BadValue{"bf16", 3.4e38f}}) {
    for (const Isa isa : SupportedIsas()) {
      KvRig rig(bad.spec, kGeometry, isa);
      KvCache cache = rig.NewCache();
      const RandomSequence sequence(kGeometry, 80, test::TestSeed());
      rig.Run(cache, sequence, 10, 10);
      const std::size_t row = kGeometry.n_kv_head * kGeometry.head_dim;
      std::vector<float> rows(70 * row, 1.0f);
      std::vector<float> bad_rows = rows;
      bad_rows[61 * row + 1 * 32 + 5] = bad.value;  // token 10 + 61, KV head 1
      try {
        cache.Append(1, 70, rows.data(), bad_rows.data());
        ADD_FAILURE() << bad.value << " was stored as " << bad.spec;
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("value of layer 1, KV head 1, token 71"),
                  std::string::npos)
            << error.what();
      }
      cache.Rollback();
      EXPECT_EQ(cache.resident_bytes(), rig.method->Predict(10).resident);
    }
  }
}

TEST(CacheErrors, Bf16HoldsWhatOverflowsHalf) {
  KvRig rig("bf16", kGeometry, SupportedIsas().back());
  KvCache cache = rig.NewCache();
  const std::vector<float> rows(64, 1e30f);
  EXPECT_NO_THROW(cache.Append(0, 1, rows.data(), rows.data()));
}

// The phases of k_mean=rope end somewhere: refused before anything is read.
TEST(CacheErrors, PositionsBeyondThePhasesAreRefused) {
  CacheGeometry geometry = kGeometry;
  RopeGeometry rope;
  rope.frequency.assign(16, 0.1);
  geometry.rope = std::make_shared<const RopeGeometry>(rope);
  KvRig rig("turboquant_rvq", geometry, SupportedIsas().back());
  KvCache cache = rig.NewCache();
  const std::vector<float> rows(64, 1.0f);
  try {
    cache.Append(0, RopePhases::kMaxTokens + 1, rows.data(), rows.data(), rows.data());
    ADD_FAILURE() << "a million positions too far were taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("1048576 tokens; use another k_mean"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(rig.pool.resident_bytes(), 0u);
}

// Balanced smoothing cannot do without queries.
TEST(CacheErrors, MissingQueriesAreAnErrorWhereTheyAreNeeded) {
  const std::vector<float> rows(64, 1.0f);
  for (const auto& [spec, needed] : {std::pair{"turboquant_rvq,k_mean=off,smooth=balanced,sink=0", true},
                                     std::pair{"turboquant_rvq,k_mean=block0,smooth=sigma", false},
                                     std::pair{"turboquant_rvq_published", false}}) {
    KvRig rig(spec, kGeometry, SupportedIsas().back());
    KvCache cache = rig.NewCache();
    if (needed) {
      EXPECT_THROW(cache.Append(0, 1, rows.data(), rows.data()), Error) << spec;
    } else {
      EXPECT_NO_THROW(cache.Append(0, 1, rows.data(), rows.data())) << spec;
    }
  }
}

}  // namespace
}  // namespace kvant

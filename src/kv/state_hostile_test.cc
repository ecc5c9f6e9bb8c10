// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What RestoreState refuses: every truncation, every flipped bit, everything that belongs elsewhere, and
// files whose checksums are right and whose contents are not. One sentence each, and nothing stays behind.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "kv/state.h"
#include "kvant/error.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/seed.h"
#include "tests/support/state_bytes.h"

namespace kvant {
namespace {

using test::KvRig;
using test::StateBytes;

constexpr const char* kSpec = "k=turboquant_mse:bits=1,v=turboquant_mse:bits=1,smooth=balanced_pair";

CacheGeometry Geometry(double rope_base = 10, bool adjacent = true) {
  RopeGeometry rope;
  for (int pair = 0; pair < 8; ++pair) rope.frequency.push_back(std::pow(rope_base, -pair / 2.0));
  rope.adjacent_pairs = adjacent;
  return {.n_layer = 1,
          .n_kv_head = 1,
          .heads_per_kv = 1,
          .head_dim = 16,
          .rope = std::make_shared<const RopeGeometry>(rope)};
}

class StateHostileTest : public testing::Test {
 protected:
  StateHostileTest() : rig_(kSpec, Geometry(), SupportedIsas().back()) {}

  StateBytes StateOf(std::size_t n_cached, std::size_t n_tokens) {
    KvCache cache = rig_.NewCache();
    rig_.Run(cache, test::RandomSequence(Geometry(), 200, test::TestSeed()), n_cached, 64);
    return test::SaveToBytes(cache, test::CountingTokens(n_tokens));
  }

  // Refused with this code, one sentence that begins with the file and has all these words, nothing held.
  void ExpectRefused(KvRig& rig, const RestoreArgs& args, ErrorCode code,
                     const std::vector<std::string>& words, const std::string& trace = "") {
    try {
      RestoreState(rig.method, &rig.pool, rig.isa, args);
      ADD_FAILURE() << "it was restored; " << trace;
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_EQ(error.code(), code) << what << "; " << trace;
      EXPECT_EQ(what.rfind("test.state: ", 0), 0u) << what;
      EXPECT_EQ(what.find('\n'), std::string::npos) << what;
      for (const std::string& word : words) {
        EXPECT_NE(what.find(word), std::string::npos) << word << " is not in: " << what;
      }
    }
    EXPECT_EQ(rig.pool.resident_bytes(), 0u) << trace;
  }
  void ExpectCorrupt(const StateBytes& bytes, const std::vector<std::string>& words,
                     const std::string& trace = "") {
    ExpectRefused(rig_, test::ArgsFor(bytes), ErrorCode::kCorruptData, words, trace);
  }
  void ExpectRefusedElsewhere(const std::string& spec, const CacheGeometry& geometry,
                              const std::vector<std::string>& words) {
    const StateBytes bytes = StateOf(70, 70);
    KvRig rig(spec, geometry, SupportedIsas().back());
    ExpectRefused(rig, test::ArgsFor(bytes), ErrorCode::kInvalidArgument, words);
  }
  // The state with `from` in its header replaced, sealed again.
  static StateBytes Replaced(const StateBytes& bytes, const std::string& from, const std::string& to) {
    std::string header = test::HeaderText(bytes);
    const std::size_t at = header.find(from);
    EXPECT_NE(at, std::string::npos) << from << " is not in " << header;
    if (at == std::string::npos) return bytes;
    return test::WithHeader(bytes, header.replace(at, from.size(), to));
  }

  KvRig rig_;
};

TEST_F(StateHostileTest, TruncationAtEveryByteIsSurvived) {
  const StateBytes whole = StateOf(195, 196);  // packed, sinks none, versions, energy, exact rows
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const StateBytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    ExpectCorrupt(cut, {size < kStateMagic.size() ? "not a saved state" : "truncated"},
                  "cut to " + std::to_string(size));
  }
  StateBytes longer = whole;
  longer.push_back(std::byte{0});
  ExpectCorrupt(longer, {"1 bytes more"});
}

TEST_F(StateHostileTest, EveryFlippedBitIsFound) {
  const StateBytes whole = StateOf(3, 4);
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    StateBytes changed = whole;
    changed[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    const std::size_t byte = bit / 8;
    const bool version = byte >= 8 && byte < 12;
    ExpectRefused(rig_, test::ArgsFor(changed),
                  version ? ErrorCode::kUnsupported : ErrorCode::kCorruptData, {},
                  "bit " + std::to_string(bit));
  }
}

TEST_F(StateHostileTest, FlippedBitsInLongStatesAreFound) {
  const StateBytes whole = StateOf(195, 196);
  SplitMix64 rng(test::TestSeed());
  for (int i = 0; i < 2000; ++i) {
    StateBytes changed = whole;
    const std::size_t bit = 8 * kStatePreludeBytes + rng.Below(8 * (whole.size() - kStatePreludeBytes));
    changed[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    ExpectCorrupt(changed, {"checksum"}, "bit " + std::to_string(bit));
  }
}

TEST_F(StateHostileTest, WhatBelongsElsewhereIsRefusedByName) {
  ExpectRefusedElsewhere("fp16", Geometry(), {"its method is 'k=turboquant_mse", "here is 'fp16'", "--kv"});
  CacheGeometry other = Geometry();
  other.n_layer = 2;
  ExpectRefusedElsewhere(kSpec, other, {"its layers is 1", "has 2"});
  other = Geometry();
  other.n_kv_head = 3;
  ExpectRefusedElsewhere(kSpec, other, {"its kv_heads is 1", "has 3"});
  other = Geometry();
  other.heads_per_kv = 4;
  ExpectRefusedElsewhere(kSpec, other, {"its heads_per_kv is 1", "has 4"});
  other = Geometry();
  other.head_dim = 32;
  ExpectRefusedElsewhere(kSpec, other, {"its head_dim is 16", "has 32"});
  ExpectRefusedElsewhere(kSpec, Geometry(10.5), {"its rope turns pair 1 by 0.316", "here by 0.308"});
  ExpectRefusedElsewhere(kSpec, Geometry(10, false), {"its rope is adjacent", "has split"});
  other = Geometry();
  other.rope = nullptr;
  ExpectRefusedElsewhere("fp16", other, {"its rope is adjacent with 8 pairs", "none with 0"});
}

// Two ways of turning keys in one model.
TEST_F(StateHostileTest, EachLayersRopeMustBeTheSame) {
  const auto layers = [](double first, double second) {
    CacheGeometry geometry = Geometry();
    geometry.n_layer = 2;
    geometry.layer_ropes = {Geometry(first).rope, Geometry(second).rope};
    return geometry;
  };
  constexpr const char* kRopeSpec = "turboquant_rvq";
  KvRig rig(kRopeSpec, layers(10, 20), SupportedIsas().back());
  StateBytes bytes;
  {
    KvCache cache = rig.NewCache();
    rig.Run(cache, test::RandomSequence(layers(10, 20), 300, test::TestSeed()), 260, 64);
    bytes = test::SaveToBytes(cache, test::CountingTokens(260));
  }
  KvRig same(kRopeSpec, layers(10, 20), SupportedIsas().back());
  {
    const RestoredState state =
        RestoreState(same.method, &same.pool, same.isa, test::ArgsFor(bytes));
    EXPECT_EQ(test::SaveToBytes(state.cache, state.tokens), bytes);
  }
  KvRig other(kRopeSpec, layers(10, 21), SupportedIsas().back());
  ExpectRefused(other, test::ArgsFor(bytes), ErrorCode::kInvalidArgument, {"its rope turns pair"});
  KvRig turned(kRopeSpec, layers(20, 10), SupportedIsas().back());
  ExpectRefused(turned, test::ArgsFor(bytes), ErrorCode::kInvalidArgument, {"its rope turns pair"});
  CacheGeometry alike = layers(10, 20);
  alike.layer_ropes.clear();
  KvRig one(kRopeSpec, alike, SupportedIsas().back());
  ExpectRefused(one, test::ArgsFor(bytes), ErrorCode::kInvalidArgument, {"its rope is adjacent"});
}

TEST_F(StateHostileTest, AnotherModelOrVersionOrTooShortAContextIsRefused) {
  StateBytes bytes = StateOf(70, 70);
  RestoreArgs args = test::ArgsFor(bytes);
  args.model = {.name = "other", .fingerprint = 5};
  ExpectRefused(rig_, args, ErrorCode::kInvalidArgument,
                {"its model is 'a model' with fingerprint 0123456789abcdef", "'other' with 0000000000000005"});
  args = test::ArgsFor(bytes);
  args.max_tokens = 69;
  ExpectRefused(rig_, args, ErrorCode::kInvalidArgument, {"70 tokens", "holds 69", "--ctx to 70"});
  bytes[8] = std::byte{2};
  test::Seal(bytes);
  ExpectRefused(rig_, test::ArgsFor(bytes), ErrorCode::kUnsupported,
                {"format version is 2", "reads version 1"});
}

TEST_F(StateHostileTest, TheLastTokenNeedsNoRoom) {
  const StateBytes bytes = StateOf(70, 71);
  RestoreArgs args = test::ArgsFor(bytes);
  args.max_tokens = 70;
  EXPECT_EQ(RestoreState(rig_.method, &rig_.pool, rig_.isa, args).cache.length(), 70u);
}

TEST_F(StateHostileTest, TheByteLimitHoldsToTheByte) {
  const StateBytes bytes = StateOf(195, 195);
  const std::uint64_t needed = rig_.method->Predict(195).resident;
  for (const std::uint64_t limit : {needed - 1, needed}) {
    KvRig rig(kSpec, Geometry(), SupportedIsas().back(), 1, limit);
    if (limit < needed) {
      ExpectRefused(rig, test::ArgsFor(bytes), ErrorCode::kResourceExhausted,
                    {std::to_string(needed), "--kv-limit"});
    } else {
      EXPECT_EQ(RestoreState(rig.method, &rig.pool, rig.isa, test::ArgsFor(bytes)).cache.length(), 195u);
    }
  }
}

TEST_F(StateHostileTest, ContradictionsBehindGoodChecksumsAreRefused) {
  const StateBytes bytes = StateOf(70, 71);
  const std::string body = "body_bytes " + std::to_string(StateBodyBytes(*rig_.method, 71, 70));
  ExpectCorrupt(Replaced(bytes, body, "body_bytes 1"), {"bytes more than its header says"});
  ExpectCorrupt(Replaced(bytes, body, "body_bytes 18446744073709551615"), {"truncated"});
  ExpectCorrupt(Replaced(bytes, body, "body_bytes 99999999999999999999"), {"'body_bytes'"});
  ExpectCorrupt(Replaced(bytes, body, "body_bytes -1"), {"'body_bytes'"});
  ExpectCorrupt(Replaced(bytes, "tokens 71", "tokens 69"), {"70 of 69"});
  ExpectCorrupt(Replaced(bytes, "tokens 71", "tokens 72"), {"body_bytes"});
  ExpectCorrupt(Replaced(bytes, "cached 70", "cached 0"), {"payload_bytes is"});
  ExpectRefused(rig_, test::ArgsFor(Replaced(Replaced(bytes, "cached 70", "cached 18446744073709551615"),
                                             "tokens 71", "tokens 18446744073709551615")),
                ErrorCode::kInvalidArgument, {"--ctx"});
  ExpectCorrupt(Replaced(bytes, "block_tokens 64", "block_tokens 32"), {"block_tokens is 32"});
  ExpectCorrupt(Replaced(bytes, "payload_bytes ", "payload_bytes 1"), {"payload_bytes is 1"});
  ExpectCorrupt(Replaced(bytes, "resident_bytes ", "resident_bytes 1"), {"resident_bytes is 1"});
  ExpectCorrupt(Replaced(bytes, "layers 1", "layer 1"), {"'layers'"});
  ExpectCorrupt(Replaced(bytes, "layers 1\n", ""), {"'layers'"});
  ExpectCorrupt(Replaced(bytes, body + "\n", body + "\nmore 1\n"), {"after the last field"});
  ExpectCorrupt(Replaced(bytes, body + "\n", body), {"'body_bytes'"});
  ExpectCorrupt(test::WithHeader(bytes, ""), {"'model'"});
  ExpectRefused(rig_, test::ArgsFor(Replaced(bytes, "rotation ", "rotation older ")),
                ErrorCode::kUnsupported, {"its rotation is 'older"});
  ExpectRefused(rig_, test::ArgsFor(Replaced(bytes, "bits=1:", "bits=1,by other rules:")),
                ErrorCode::kUnsupported, {"meant 'k=turboquant_mse:bits=1,by other rules:"});
  ExpectRefused(rig_, test::ArgsFor(Replaced(bytes, "adjacent 1 ", "adjacent nan ")),
                ErrorCode::kInvalidArgument, {"pair 0 by nan"});
}

TEST_F(StateHostileTest, ContentsBehindGoodChecksumsAreChecked) {
  const StateBytes bytes = StateOf(3, 4);
  const std::size_t body = kStatePreludeBytes + test::HeaderBytes(bytes) + kStateChecksumBytes;
  for (const std::int32_t id : {-1, static_cast<std::int32_t>(test::kStateVocab), INT32_MIN}) {
    StateBytes changed = bytes;
    std::memcpy(changed.data() + body + 2 * sizeof(id), &id, sizeof(id));
    test::Seal(changed);
    ExpectCorrupt(changed, {"token 2 has the id " + std::to_string(id), "1000 tokens"});
  }
  StateBytes changed = bytes;  // the positions of the statistics: tokens, 3 exact rows, then they
  changed[body + 4 * sizeof(std::int32_t) + 3 * 2 * 2 * 16] ^= std::byte{1};
  test::Seal(changed);
  ExpectCorrupt(changed, {"query statistics"});
  changed = bytes;  // a header length that no header has
  changed[15] = std::byte{0xff};
  ExpectCorrupt(changed, {"its header is said to have"});
}

// Any row bytes are rows: hostile ones may give nonsense, or an Error when they are packed, and no more.
TEST_F(StateHostileTest, HostileRowsGoOnWithoutHarm) {
  const test::RandomSequence sequence(Geometry(), 200, test::TestSeed());
  for (const std::byte fill : {std::byte{0}, std::byte{0x7f}, std::byte{0xff}}) {
    StateBytes bytes = StateOf(100, 100);
    const std::size_t rows =
        kStatePreludeBytes + test::HeaderBytes(bytes) + kStateChecksumBytes + 100 * sizeof(std::int32_t);
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(rows), bytes.end(), fill);
    const std::uint64_t n_energy = 64;  // window=0
    const std::size_t at = bytes.size() - kStateChecksumBytes - 2 * 16 * sizeof(float) -
                           16 * sizeof(float) - sizeof(n_energy);
    std::memcpy(bytes.data() + at, &n_energy, sizeof(n_energy));
    test::Seal(bytes);
    RestoredState state = RestoreState(rig_.method, &rig_.pool, rig_.isa, test::ArgsFor(bytes));
    EXPECT_EQ(state.cache.Rows(0, 0, Side::kKey).size(), 100u * 16);
    try {
      rig_.Run(state.cache, sequence, 200, 50);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    }
  }
}

TEST_F(StateHostileTest, WhatTheSourceThrowsComesThrough) {
  const StateBytes bytes = StateOf(70, 70);
  RestoreArgs args = test::ArgsFor(bytes);
  int n_left = 6;
  args.read = [&, read = args.read](std::span<std::byte> to) {
    if (n_left-- == 0) throw Error(ErrorCode::kNotFound, "test.state: gone");
    read(to);
  };
  ExpectRefused(rig_, args, ErrorCode::kNotFound, {"gone"});
}

}  // namespace
}  // namespace kvant

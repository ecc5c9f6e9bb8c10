// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The grammar's items of packed methods: key transforms, tails, reading, and where options of a preset go.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kv/registry.h"
#include "kv/resolved_method.h"
#include "kv/spec.h"
#include "kvant/error.h"
#include "tests/support/bad_spec.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

std::string Canonical(std::string_view text) { return ParseMethodSpec(text).ToString(); }

TEST(SpecGrammar, KeyTransforms) {
  const auto transform = [](std::string_view text) { return ParseMethodSpec(text).key_transform; };
  EXPECT_FALSE(transform("fp16").active());
  EXPECT_EQ(transform("k_mean=off").mean, KeyMean::kOff);
  EXPECT_EQ(transform("k_mean=block0").mean, KeyMean::kBlock0);
  EXPECT_EQ(transform("k_mean=rope").mean, KeyMean::kRope);
  EXPECT_EQ(transform("k_mean=refreeze:64").mean, KeyMean::kRefreeze);
  EXPECT_EQ(transform("k_mean=refreeze:64").refreeze_tokens, 64u);
  EXPECT_EQ(transform("k_mean=refreeze:1073741824").refreeze_tokens, std::size_t{1} << 30);
  EXPECT_EQ(transform("k_mean=block0").refreeze_tokens, 0u);
  EXPECT_EQ(transform("smooth=off").smooth, KeySmooth::kOff);
  EXPECT_EQ(transform("smooth=balanced").smooth, KeySmooth::kBalanced);
  EXPECT_EQ(transform("smooth=balanced_pair").smooth, KeySmooth::kBalancedPair);
  EXPECT_EQ(transform("smooth=sigma").smooth, KeySmooth::kSigma);
  EXPECT_EQ(transform("smooth=max").smooth, KeySmooth::kMax);
  // An item replaces the preset's, the number of a refreeze too.
  EXPECT_EQ(transform("turboquant_rvq,k_mean=refreeze:128").refreeze_tokens, 128u);
  EXPECT_EQ(transform("turboquant_rvq,k_mean=off").mean, KeyMean::kOff);
  EXPECT_EQ(transform("turboquant_rvq,k_mean=off").smooth, KeySmooth::kBalancedPair);
}

TEST(SpecGrammar, TailAndRead) {
  EXPECT_FALSE(ParseMethodSpec("fp16").pack_tail);
  EXPECT_TRUE(ParseMethodSpec("tail=packed").pack_tail);
  EXPECT_FALSE(ParseMethodSpec("turboquant_rvq_published,tail=exact").pack_tail);
  EXPECT_FALSE(ParseMethodSpec("fp16").dequantize);
  EXPECT_TRUE(ParseMethodSpec("read=dequantize").dequantize);
  EXPECT_FALSE(ParseMethodSpec("turboquant_rvq:read=codes").dequantize);
}

// None of the project's improvements is in the published method.
TEST(SpecGrammar, ThePublishedPresetIsThePublishedMethod) {
  const MethodSpec spec = ParseMethodSpec("turboquant_rvq_published");
  EXPECT_EQ(spec.sink, 0u);
  EXPECT_EQ(spec.window, 0u);
  EXPECT_FALSE(spec.key_transform.active());
  EXPECT_TRUE(spec.pack_tail);
  EXPECT_EQ(spec.key, (CodecChoice{"turboquant_rvq",
                                   {{"codebook", "upstream", 0}, {"scalar", "norm", 0}}}));
  EXPECT_EQ(spec.value, (CodecChoice{"fp16", {}}));
}

TEST(SpecGrammar, TheDefaultPreset) {
  EXPECT_TRUE(ParseMethodSpec("turboquant_rvq") ==
              ParseMethodSpec("k=turboquant_rvq,v=turboquant_rvq,k_mean=rope,smooth=balanced_pair,sink=4,"
                              "window=128"));
}

TEST(SpecGrammar, OptionsOfAPresetReachItsCodecsOrTheMethod) {
  const MethodSpec spec = ParseMethodSpec("turboquant_rvq:bits=3+1:window=256:sink=2:smooth=max:k_mean=off");
  for (const CodecChoice* side : {&spec.key, &spec.value}) {
    EXPECT_EQ(*side, (CodecChoice{"turboquant_rvq", {{"bits", "3+1", 0}}}));
  }
  EXPECT_EQ(spec.window, 256u);
  EXPECT_EQ(spec.sink, 2u);
  EXPECT_EQ(spec.key_transform.smooth, KeySmooth::kMax);
  EXPECT_EQ(spec.key_transform.mean, KeyMean::kOff);
  // Only keys are coded here, and what the preset says of them is replaced.
  const MethodSpec published = ParseMethodSpec("turboquant_rvq_published:bits=3+1:scalar=matched");
  EXPECT_EQ(published.key, (CodecChoice{"turboquant_rvq",
                                        {{"bits", "3+1", 0}, {"codebook", "upstream", 0},
                                         {"scalar", "matched", 0}}}));
  EXPECT_EQ(published.value, (CodecChoice{"fp16", {}}));
  EXPECT_EQ(Canonical("fp16:exact=bf16"), "k=fp16,v=fp16,exact=bf16");
  EXPECT_TRUE(ParseMethodSpec("turboquant_rvq:k_mean=refreeze:512:bits=3+1") ==
              ParseMethodSpec("turboquant_rvq:bits=3+1,k_mean=refreeze:512"));
}

TEST(SpecGrammar, CanonicalTextsOfPackedMethods) {
  EXPECT_EQ(Canonical("turboquant_rvq"), "turboquant_rvq");
  EXPECT_EQ(Canonical("turboquant_rvq_published"), "turboquant_rvq_published");
  EXPECT_EQ(Canonical("turboquant_mse"), "turboquant_mse");
  EXPECT_EQ(Canonical("turboquant_rvq,window=128,sink=4"), "turboquant_rvq");
  EXPECT_EQ(Canonical("turboquant_rvq,sink=0"),
            "k=turboquant_rvq,v=turboquant_rvq,window=128,k_mean=rope,smooth=balanced_pair");
  EXPECT_EQ(Canonical("turboquant_rvq,k_mean=refreeze:512,smooth=off,read=dequantize"),
            "k=turboquant_rvq,v=turboquant_rvq,sink=4,window=128,k_mean=refreeze:512,read=dequantize");
  // Options stand in the order of their names.
  EXPECT_EQ(Canonical("k=turboquant_rvq:seed=7:bits=3+1:codebook=fitted,v=turboquant_mse:bits=3"),
            "k=turboquant_rvq:bits=3+1:codebook=fitted:seed=7,v=turboquant_mse:bits=3");
  EXPECT_EQ(Canonical("turboquant_rvq,layers=0-1+29:k=fp16:v=turboquant_mse:bits=2:scalar=norm"),
            "turboquant_rvq,layers=0-1+29:k=fp16:v=turboquant_mse:bits=2:scalar=norm");
}

using BadItem = test::BadSpec;

class BadItemTest : public testing::TestWithParam<BadItem> {};

TEST_P(BadItemTest, PointsAtTheCharacterAndSaysWhatIsAllowed) { test::ExpectRefusedAt(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Items, BadItemTest,
    testing::Values(
        BadItem{"k_mean=", 8, "allowed: off, block0, refreeze:N, rope"},
        BadItem{"k_mean=mean", 8, "allowed: off, block0, refreeze:N, rope"},
        BadItem{"k_mean=refreeze", 8, "allowed: off, block0, refreeze:N, rope"},
        BadItem{"k_mean=rope:1", 13, "takes no options; remove ':1'"},
        BadItem{"k_mean=refreeze:0", 17, "a multiple of 64 from 64 to 1073741824"},
        BadItem{"k_mean=refreeze:32", 17, "a multiple of 64 from 64 to 1073741824"},
        BadItem{"k_mean=refreeze:100", 17, "a multiple of 64 from 64 to 1073741824"},
        BadItem{"k_mean=refreeze:-64", 17, "a multiple of 64 from 64"},
        BadItem{"k_mean=refreeze:64.5", 17, "a multiple of 64 from 64"},
        BadItem{"k_mean=refreeze:", 17, "a multiple of 64 from 64"},
        BadItem{"k_mean=refreeze:1073741888", 17, "from 64 to 1073741824"},
        BadItem{"k_mean=refreeze:99999999999999999999", 17, "a multiple of 64 from 64"},
        BadItem{"fp16,k_mean=rope,k_mean=rope", 18, "'k_mean=' is given twice"},
        BadItem{"smooth=", 8, "allowed: off, balanced, balanced_pair, sigma, max"},
        BadItem{"smooth=Balanced", 8, "allowed: off, balanced, balanced_pair, sigma, max"},
        BadItem{"smooth=off:a=1", 12, "takes no options"},
        BadItem{"smooth=max,sink=1,smooth=max", 19, "'smooth=' is given twice"},
        BadItem{"tail=", 6, "allowed: exact, packed"}, BadItem{"tail=pack", 6, "allowed: exact, packed"},
        BadItem{"tail=packed:1", 13, "takes no options"},
        BadItem{"tail=packed,tail=packed", 13, "'tail=' is given twice"},
        BadItem{"read=", 6, "allowed: codes, dequantize"},
        BadItem{"read=code", 6, "allowed: codes, dequantize"},
        BadItem{"read=codes,read=codes", 12, "'read=' is given twice"},
        BadItem{"turboquant_rvq:colour=1", 16, "no option 'colour'"},
        BadItem{"turboquant_rvq:bits", 16, "write bits=VALUE"},
        BadItem{"turboquant_rvq:bits=3+1:bits=2+2", 25, "'bits' is given twice"},
        BadItem{"turboquant_rvq_published:scalar=matched:scalar=norm", 41, "'scalar' is given twice"},
        BadItem{"k=turboquant_rvq:seed=1:seed=1", 25, "'seed' is given twice"},
        BadItem{"turboquant_rvq:window=100", 23, "use 64 or 128"},
        BadItem{"turboquant_rvq:window=256:window=128", 27, "'window' is given twice"},
        BadItem{"turboquant_rvq:k_mean=refreeze:100", 32, "a multiple of 64 from 64 to 1073741824"},
        BadItem{"k_mean=refreeze:64:x", 20, "remove ':x'"},
        BadItem{"turboquant_rvq:bits=9+9", 21, "allowed: STAGE1+STAGE2"},
        BadItem{"turboquant_rvq_published:encode=x", 33, "allowed: fused, unfused"},
        BadItem{"k=turboquant_rvq:seed=1:bits=9", 30, "allowed: STAGE1+STAGE2"},
        BadItem{"fp16,v=turboquant_mse:bits=9", 28, "allowed: 1 to 8"},
        BadItem{"turboquant_rvq:smooth=none", 23, "allowed: off, balanced"},
        BadItem{"turboquant_rvq:tail=x", 21, "allowed: exact, packed"},
        BadItem{"turboquant_rvq:sink=65", 21, "0 to 64"},
        BadItem{"fp16,turboquant_rvq", 6, "may only come first"},
        BadItem{"turboquant_mse,layers=0:k=turboquant_rvq:bits=0+1", 47, "allowed: STAGE1+STAGE2"},
        BadItem{"turboquant_mse,layers=0:k=fp16:bits=4", 32, "it takes no options"}));

TEST(SpecGrammar, ValuesThatACodecRefusesAreNamed) {
  for (const char* text : {"turboquant_rvq:bits=2", "turboquant_rvq:bits=5+1", "k=turboquant_rvq:bits=2+5",
                           "turboquant_rvq:codebook=best", "turboquant_rvq:scalar=max",
                           "turboquant_rvq:encode=slow", "turboquant_rvq:seed=-1", "turboquant_rvq:seed=",
                           "turboquant_rvq:seed=18446744073709551616", "turboquant_mse:bits=0",
                           "turboquant_mse:bits=9", "turboquant_mse:bits=2+2", "v=turboquant_mse:bits="}) {
    try {
      ParseMethodSpec(text);
      ADD_FAILURE() << text << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("allowed: "), std::string::npos) << error.what();
    }
  }
}

// Items from all parts of the grammar in any order.
class RandomSpec {
 public:
  explicit RandomSpec(SplitMix64& rng) : rng_(rng) {}

  std::vector<std::string> Items() {
    std::vector<std::string> items;
    if (rng_.Below(2) == 0) items.push_back("k=" + Codec());
    if (rng_.Below(2) == 0) items.push_back((rng_.Below(2) == 0 ? "v=" : "values=") + Codec());
    Maybe(items, {"exact=fp16", "exact=bf16"});
    Maybe(items, {"sink=0", "sink=4", "sink=64"});
    Maybe(items, {"window=0", "window=64", "window=1048576"});
    Maybe(items, {"k_mean=off", "k_mean=block0", "k_mean=refreeze:64", "k_mean=refreeze:4096", "k_mean=rope"});
    Maybe(items, {"smooth=off", "smooth=balanced", "smooth=balanced_pair", "smooth=sigma", "smooth=max"});
    Maybe(items, {"tail=exact", "tail=packed"});
    Maybe(items, {"read=codes", "read=dequantize"});
    while (rng_.Below(3) == 0) {
      items.push_back(std::string("layers=") + One({"0", "0-3", "1+3", "0-1+2-3"}) + ":k=" + Codec() +
                      (rng_.Below(2) == 0 ? ":v=" + Codec() : ""));
    }
    return items;
  }
  std::string Preset() {
    return One({"fp16", "bf16", "turboquant_rvq", "turboquant_rvq_published", "turboquant_mse",
                "turboquant_rvq:bits=3+1", "turboquant_rvq:window=256:scalar=norm",
                "turboquant_rvq_published:encode=unfused", "turboquant_mse:smooth=off:bits=8:sink=0"});
  }

 private:
  std::string One(std::initializer_list<const char*> texts) { return texts.begin()[rng_.Below(texts.size())]; }
  void Maybe(std::vector<std::string>& items, std::initializer_list<const char*> texts) {
    if (rng_.Below(2) == 0) items.push_back(One(texts));
  }
  std::string Codec() {
    return One({"fp16", "bf16", "turboquant_rvq", "turboquant_mse", "turboquant_rvq:bits=1+1",
                "turboquant_rvq:seed=9:bits=4+4:codebook=fitted", "turboquant_rvq:scalar=norm:encode=unfused",
                "turboquant_mse:bits=1", "turboquant_mse:scalar=matched:bits=8:seed=0"});
  }

  SplitMix64& rng_;
};

TEST(SpecGrammar, EveryCombinationRoundTrips) {
  SplitMix64 rng = test::TestRng();
  RandomSpec random(rng);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> items = random.Items();
    const std::string preset = rng.Below(2) == 0 ? random.Preset() : "";
    const auto joined = [&] {
      std::string text = preset;
      for (const std::string& item : items) text += (text.empty() ? "" : ",") + item;
      return text;
    };
    const std::string text = joined();
    if (text.empty()) continue;
    const MethodSpec spec = ParseMethodSpec(text);
    const std::string canonical = spec.ToString();
    ASSERT_TRUE(ParseMethodSpec(canonical) == spec) << text << " became " << canonical;
    ASSERT_EQ(Canonical(canonical), canonical) << text;
    // Items may come in any order, as long as those for layers keep theirs.
    for (std::size_t i = items.size(); i > 1; --i) {
      const std::size_t j = rng.Below(i);
      const auto layers = [](const std::string& item) { return item.starts_with("layers="); };
      if (!layers(items[i - 1]) && !layers(items[j])) std::swap(items[i - 1], items[j]);
    }
    ASSERT_EQ(Canonical(joined()), canonical) << text << " and " << joined();
  }
}

const CacheGeometry kGeometry = {.n_layer = 4, .n_kv_head = 2, .heads_per_kv = 2, .head_dim = 64};

void ExpectRefused(std::string_view text, ErrorCode code, std::string_view says) {
  try {
    Method(ParseMethodSpec(text), kGeometry);
    ADD_FAILURE() << text << " was accepted";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), code) << text;
    EXPECT_NE(message.find(says), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(SpecGrammar, APackedTailHasNoExactRows) {
  for (const char* text : {"turboquant_rvq_published,sink=4", "turboquant_rvq_published,window=64",
                           "turboquant_rvq_published,k_mean=block0", "turboquant_rvq_published:smooth=max",
                           "turboquant_rvq,tail=packed", "fp16,tail=packed,sink=1"}) {
    ExpectRefused(text, ErrorCode::kInvalidArgument, "use it with sink=0, window=0, k_mean=off and smooth=off");
  }
  EXPECT_NO_THROW(Method(ParseMethodSpec("turboquant_rvq_published"), kGeometry));
  EXPECT_NO_THROW(Method(
      ParseMethodSpec("turboquant_rvq:tail=packed:sink=0:window=0:k_mean=off:smooth=off"), kGeometry));
}

TEST(SpecGrammar, MethodsThatNeedRopeAreRefusedWithoutIt) {
  ExpectRefused("turboquant_rvq", ErrorCode::kUnsupported, "use k_mean=block0 and smooth=balanced");
  ExpectRefused("turboquant_rvq,k_mean=off", ErrorCode::kUnsupported, "smooth=balanced_pair needs");
  ExpectRefused("turboquant_rvq,smooth=off", ErrorCode::kUnsupported, "k_mean=rope needs");
  EXPECT_NO_THROW(Method(ParseMethodSpec("turboquant_rvq,k_mean=block0,smooth=balanced"), kGeometry));
}

TEST(SpecGrammar, HeadDimsThatRotatedCodesCannotKeepAreRefused) {
  for (const std::size_t head_dim : {0, 8, 40, 100, 1040, 2048}) {
    CacheGeometry geometry = kGeometry;
    geometry.head_dim = head_dim;
    for (const char* text : {"turboquant_rvq_published", "k=turboquant_mse",
                             "turboquant_rvq,k_mean=block0,smooth=sigma"}) {
      try {
        Method(ParseMethodSpec(text), geometry);
        ADD_FAILURE() << text << " took head_dim " << head_dim;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace kvant

// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/spec.h"

#include <gtest/gtest.h>

#include "kv/resolved_method.h"
#include "kvant/error.h"
#include "tests/support/bad_spec.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

std::string Canonical(std::string_view text) { return ParseMethodSpec(text).ToString(); }

TEST(MethodSpec, CanonicalTexts) {
  EXPECT_EQ(Canonical("fp16"), "fp16");
  EXPECT_EQ(Canonical("bf16"), "bf16");
  EXPECT_EQ(Canonical("k=fp16,v=fp16"), "fp16");
  EXPECT_EQ(Canonical("v=fp16"), "fp16");
  EXPECT_EQ(Canonical("k=bf16"), "k=bf16,v=fp16");
  EXPECT_EQ(Canonical("k=bf16,values=bf16"), "k=bf16,v=bf16");
  EXPECT_EQ(Canonical("k=bf16,v=bf16,exact=bf16"), "bf16");
  EXPECT_EQ(Canonical("bf16,exact=fp16"), "k=bf16,v=bf16");
  EXPECT_EQ(Canonical("fp16,window=128,sink=4"), "k=fp16,v=fp16,sink=4,window=128");
  EXPECT_EQ(Canonical("fp16,layers=0-1+28:k=bf16"), "fp16,layers=0-1+28:k=bf16");
  EXPECT_EQ(Canonical("fp16,layers=3:k=bf16:v=bf16,layers=5-5:v=bf16"),
            "fp16,layers=3:k=bf16:v=bf16,layers=5:v=bf16");
}

TEST(MethodSpec, ProfilesArePaths) {
  for (const std::string_view text :
       {"turboquant_rvq,profile=a.profile", "turboquant_rvq,profile=/a b/c:d=e:f", "turboquant_rvq,profile=x:",
        "k=turboquant_mse:bits=4,v=fp16,smooth=max,profile=x=y", "turboquant_rvq,profile=a,layers=0:k=fp16"}) {
    EXPECT_EQ(Canonical(text), text);
    EXPECT_TRUE(ParseMethodSpec(text) == ParseMethodSpec(Canonical(text)));
  }
  EXPECT_EQ(Canonical("turboquant_rvq:profile=x"), "turboquant_rvq,profile=x");
  EXPECT_EQ(Canonical("profile=x,k=turboquant_mse:bits=4,smooth=max"),
            "k=turboquant_mse:bits=4,v=fp16,smooth=max,profile=x");
  EXPECT_FALSE(ParseMethodSpec("turboquant_rvq,profile=a") == ParseMethodSpec("turboquant_rvq,profile=b"));
  EXPECT_FALSE(ParseMethodSpec("turboquant_rvq,profile=a") == ParseMethodSpec("turboquant_rvq"));
  EXPECT_THROW(ParseMethodSpec("turboquant_rvq,profile=a\nb"), Error);  // states have it in a line
}

using test::BadSpec;

class BadSpecTest : public testing::TestWithParam<BadSpec> {};

TEST_P(BadSpecTest, PointsAtTheCharacterAndSaysWhatIsAllowed) { test::ExpectRefusedAt(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Errors, BadSpecTest,
    testing::Values(BadSpec{"", 1, "nothing is given here"}, BadSpec{"fp61", 1, "allowed: fp16, bf16"},
                    BadSpec{"fp16,", 6, "nothing is given here"},
                    BadSpec{"fp16,,sink=4", 6, "nothing is given here"},
                    BadSpec{"k=int9", 3, "unknown codec 'int9'; allowed: fp16, bf16"},
                    BadSpec{"k=", 3, "unknown codec ''"}, BadSpec{"fp16:bits=4", 6, "no option 'bits'"},
                    BadSpec{"k=bf16,v=fp16:group=32", 15, "it takes no options"},
                    BadSpec{"window=100", 8, "use 64 or 128"}, BadSpec{"window=-64", 8, "whole number"},
                    BadSpec{"window=64x", 8, "whole number"}, BadSpec{"window=", 8, "whole number"},
                    BadSpec{"sink=65", 6, "0 to 64"}, BadSpec{"sink=4:x=1", 8, "takes no options"},
                    BadSpec{"sink=4,sink=5", 8, "given twice"},
                    BadSpec{"v=fp16,values=bf16", 8, "they mean the same"},
                    BadSpec{"exact=int8", 7, "allowed: fp16, bf16"},
                    BadSpec{"k=bf16,fp16", 8, "may only come first"},
                    BadSpec{"turboquant_rvq,profile=", 24, "path of a file"},
                    BadSpec{"fp16,profile=a", 6, "add smooth="},
                    BadSpec{"turboquant_rvq:profile=a,smooth=off", 16, "add smooth="},
                    BadSpec{"turboquant_rvq,profile=a,profile=b", 26, "given twice"},
                    BadSpec{"colour=red", 1, "unknown item 'colour='"},
                    BadSpec{"fp16,evict=h2o", 12, "none in this version"},
                    BadSpec{"fp16,layers=3", 13, "changes nothing"},
                    BadSpec{"fp16,layers=5-3:k=bf16", 13, "write 3-5"},
                    BadSpec{"fp16,layers=a:k=bf16", 13, "whole number"},
                    BadSpec{"fp16,layers=1-2-3:k=bf16", 13, "not a range"},
                    BadSpec{"fp16,layers=1:x=bf16", 15, "allowed: k=CODEC"},
                    BadSpec{"fp16,layers=1:k=zip", 17, "unknown codec 'zip'"},
                    BadSpec{"fp16,layers=1:k=bf16:k=fp16", 22, "given twice"},
                    BadSpec{"fp16,window=99999999999999999999", 13, "whole number"}));

// Any text either parses to a spec whose text parses to the same spec, or is refused by an Error.
TEST(MethodSpec, RandomTextsParseOrAreRefused) {
  SplitMix64 rng = test::TestRng();
  const std::string_view parts[] = {"fp16", "bf16", "k=", "v=",  ",",     ":", "=",  "layers=", "0",
                                    "-",    "+",    "64", "sink=", "window=", "exact=", "x", "evict=", "\xff"};
  std::size_t n_parsed = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (std::uint64_t n = rng.Below(8); n > 0; --n) text += parts[rng.Below(std::size(parts))];
    try {
      const MethodSpec spec = ParseMethodSpec(text);
      ++n_parsed;
      ASSERT_TRUE(ParseMethodSpec(spec.ToString()) == spec) << text;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(n_parsed, 100u);  // the generator reaches valid texts
}

TEST(MethodSpec, ATextWithoutEndIsRefused) {
  EXPECT_THROW(ParseMethodSpec(std::string(100000, ',')), Error);
}

const CacheGeometry kGeometry = {.n_layer = 4, .n_kv_head = 2, .heads_per_kv = 2, .head_dim = 64};

TEST(Method, LayersOutsideTheModelAreNamed) {
  try {
    Method(ParseMethodSpec("fp16,layers=2-4:k=bf16"), kGeometry);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("names layer 4; the model has layers 0 to 3"),
              std::string::npos)
        << error.what();
  }
}

TEST(Method, HeadDimsThatACodecCannotKeepAreRefused) {
  for (const std::size_t head_dim : {0, 8, 40, 72, 100, 2048}) {
    CacheGeometry geometry = kGeometry;
    geometry.head_dim = head_dim;
    EXPECT_THROW(Method(ParseMethodSpec("fp16"), geometry), Error) << head_dim;
  }
  for (const std::size_t head_dim : {16, 64, 80, 96, 112, 128, 192, 256, 576}) {
    CacheGeometry geometry = kGeometry;
    geometry.head_dim = head_dim;
    EXPECT_NO_THROW(Method(ParseMethodSpec("fp16"), geometry)) << head_dim;
  }
}

TEST(Method, OverridesReachTheLayersTheyName) {
  const Method method(ParseMethodSpec("fp16,layers=1-2:k=bf16"), kGeometry);
  EXPECT_TRUE(method.layer(0).identity);
  EXPECT_EQ(method.layer(1).key.codec->name, "bf16");
  EXPECT_EQ(method.layer(2).value.codec->name, "fp16");
  EXPECT_FALSE(method.layer(2).identity);
  EXPECT_TRUE(method.layer(3).identity);
}

TEST(Method, TheReadingRuleInBlocks) {
  const Method method(ParseMethodSpec("k=bf16,v=bf16,window=128"), kGeometry);
  const LayerMethod& layer = method.layer(0);
  for (std::size_t t = 0; t < 2000; ++t) {
    std::size_t n = 0;
    while (64 * (n + 1) + 128 <= t) ++n;
    ASSERT_EQ(layer.PackedBlocks(t), n) << "position " << t;
  }
}

TEST(Method, PayloadOfFp16IsTwoBytesANumber) {
  const Method method(ParseMethodSpec("fp16"), kGeometry);
  for (const std::size_t n : {0, 1, 63, 64, 65, 1000}) {
    const PredictedBytes bytes = method.Predict(n);
    EXPECT_EQ(bytes.payload, n * 4 * 2 * 64 * 2 * 2);
    EXPECT_EQ(bytes.resident, (n + 63) / 64 * 64 * 4 * 2 * 64 * 2 * 2);
  }
}

}  // namespace
}  // namespace kvant

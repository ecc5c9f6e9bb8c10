// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "engine/stop_filter.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/seed.h"

namespace kvant {
namespace {

// The text before the stop string that is complete first (the longest where several end together).
std::string Expected(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops) {
      if (!stop.empty() && stop.size() <= end && stop.size() > longest &&
          text.compare(end - stop.size(), stop.size(), stop) == 0) {
        longest = stop.size();
      }
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

// Bit i of `cuts` cuts after byte i.
void ExpectFiltered(const std::string& text, const std::vector<std::string>& stops,
                    std::uint64_t cuts) {
  StopFilter filter(stops);
  std::string got, piece, pieces;
  const auto push = [&] {
    const bool before = filter.stopped();
    const std::string ready = filter.Push(piece);
    EXPECT_TRUE(!before || ready.empty()) << "text after the stop";
    got += ready;
    pieces += piece + "|";
    piece.clear();
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    piece += text[i];
    if ((cuts >> (i % 64) & 1) != 0) push();
  }
  push();
  const std::string want = Expected(text, stops);
  EXPECT_EQ(filter.stopped(), want.size() < text.size()) << pieces;
  if (!filter.stopped()) got += filter.Flush();
  std::string names;
  for (const std::string& stop : stops) names += "'" + stop + "' ";
  ASSERT_EQ(got, want) << "pieces " << pieces << ", stops " << names;
}

TEST(StopFilter, FindsAStopStringAtEverySplit) {
  const std::vector<std::string> stops = {"<end>"};
  for (const std::string text :
       {"a<end>b", "<end>", "<<end>", "<en<end>x", "a<en", "<e<e<end", "abc"}) {
    for (std::uint64_t cuts = 0; cuts < (1u << text.size()); ++cuts) {
      ExpectFiltered(text, stops, cuts);
    }
  }
}

TEST(StopFilter, ChoosesAmongSeveralWhereverTheTextIsCut) {
  for (const std::vector<std::string>& stops :
       {std::vector<std::string>{"abcd", "bc"}, {"bc", "abc"}, {"c", "bc", "abc"}, {"aab", "ab"}}) {
    for (const std::string text : {"xabcdy", "aabcd", "abab", "bcbc", "aaab", "dabd"}) {
      for (std::uint64_t cuts = 0; cuts < (1u << text.size()); ++cuts) {
        ExpectFiltered(text, stops, cuts);
      }
    }
  }
}

TEST(StopFilter, AgreesWithAPlainSearchOnRandomTexts) {
  SplitMix64 rng = test::TestRng();
  const auto random_text = [&rng](std::size_t max) {
    std::string text(rng.Below(max + 1), ' ');
    for (char& c : text) c = static_cast<char>('a' + rng.Below(2));
    return text;
  };
  for (int round = 0; round < 5000 && !HasFatalFailure(); ++round) {
    std::vector<std::string> stops(1 + rng.Below(3));
    for (std::string& stop : stops) stop = random_text(6);
    ExpectFiltered(random_text(30), stops, rng.Next());
  }
}

TEST(StopFilter, HoldsBackNoMoreThanItMust) {
  StopFilter filter({"\n\n", "STOP"});
  EXPECT_EQ(filter.Push("one ST"), "one ");
  EXPECT_EQ(filter.Push("ART"), "START");
  EXPECT_EQ(filter.Push(" two\n"), " two");
  EXPECT_EQ(filter.Push("three"), "\nthree");
  EXPECT_FALSE(filter.stopped());
  EXPECT_EQ(filter.Push(" S"), " ");
  EXPECT_EQ(filter.Flush(), "S");
  EXPECT_EQ(filter.Flush(), "");
}

TEST(StopFilter, WithoutStopStringsEverythingPasses) {
  StopFilter none({});
  EXPECT_EQ(none.Push("text"), "text");
  StopFilter empty({"", ""});
  EXPECT_EQ(empty.Push("text"), "text");
  EXPECT_FALSE(empty.stopped());
}

TEST(StopFilter, WorksOnBytes) {
  const std::string stop = "\xe2\x82\xac";
  ExpectFiltered("5 " + stop + " left", {stop}, ~std::uint64_t{0});
  StopFilter filter({std::string("\0x", 2)});
  EXPECT_EQ(filter.Push(std::string("a\0", 2)), "a");
  EXPECT_EQ(filter.Push("xb"), "");
  EXPECT_TRUE(filter.stopped());
}

}  // namespace
}  // namespace kvant

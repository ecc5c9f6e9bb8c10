// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A stored result of mode "published" as text and as HTML.

#include <gtest/gtest.h>

#include "bench/harness/published_tables.h"
#include "bench/harness/render_html.h"
#include "bench/harness/render_text.h"
#include "bench/harness/test_fakes.h"

namespace kvant::bench {
namespace {

using nlohmann::json;
using test::FakePublishedBench;

// Costs with known rates: 120 tokens in .232 + 119 * .01 s, the method's steps of .02 s.
json StoredResult() {
  FakePublishedBench bench;
  for (const Arm& arm : bench.config.arms) {
    test::FakeCost& cost = bench.runner.costs[arm.name];
    cost.slope_s = 0;
    if (!arm.is_baseline) cost.intercept_s = 0.02;
    cost.storage = arm.is_baseline ? "exact" : "packed";
    cost.sides = {.kv_len = 320,
                  .fp16_key_vector = 256,
                  .packed_key_vector = arm.is_baseline ? 256.0 : 66.0,
                  .key_resident = arm.is_baseline ? 81920u : 33280u,
                  .value_resident = 81920,
                  .fp16_key_resident = 81920,
                  .fp16_value_resident = 81920};
    bench.peak_bytes[arm.name] = arm.is_baseline ? 100'000'000 : 98'500'000;
  }
  bench.runner.costs["on"].tokens = bench.runner.costs["off"].tokens =
      [](std::size_t n, std::size_t) { return std::vector<TokenId>(n, 5); };
  return json::parse(bench.Run().dump());
}

// clang-format off
constexpr const char* kGolden = R"golden(The published method, this machine: the published columns, and decode alone
  prompt  arm   tok/s median (min-max)  peak MB  vs fp16  key ratio  decode-only tok/s  vs fp16
     231  fp16        84.4 (84.4-84.4)    100.0  100.0 %       1.00      100 (100-100)  100.0 %
          off         45.9 (45.9-45.9)     98.5   54.4 %       3.88   50.0 (50.0-50.0)   50.0 %
          on          45.9 (45.9-45.9)     98.5   54.4 %       3.88   50.0 (50.0-50.0)   50.0 %
    2238  fp16        35.0 (35.0-35.0)    100.0  100.0 %       1.00      100 (100-100)  100.0 %
          off         26.0 (26.0-26.0)     98.5   74.2 %       3.88   50.0 (50.0-50.0)   50.0 %
          on          26.0 (26.0-26.0)     98.5   74.2 %       3.88   50.0 (50.0-50.0)   50.0 %
  (tok/s: new tokens by prefill and decode together; key ratio: packed vectors only)

The published method: fp16 bytes by all resident bytes, and tokens
  prompt  arm   new tokens  key ratio resident  KV ratio resident  KV MB  anon peak MB  first token ms
     231  fp16         120                1.00               1.00    0.2          50.0             232
          off          120                2.46               1.42    0.1          49.2             232  ! degenerate output: period 1
          on           120                2.46               1.42    0.1          49.2             232  ! degenerate output: period 1
    2238  fp16         120                1.00               1.00    0.2          50.0            2239
          off          120                2.46               1.42    0.1          49.2            2239  ! degenerate output: period 1
          on           120                2.46               1.42    0.1          49.2            2239  ! degenerate output: period 1
  (resident: packed blocks, exact rows, sinks and state, at the same number of tokens)

The default method, this machine: the published columns, and decode alone
  prompt  arm             tok/s median (min-max)  peak MB  vs fp16  key ratio  decode-only tok/s  vs fp16
     231  fp16                  84.4 (84.4-84.4)    100.0  100.0 %       1.00      100 (100-100)  100.0 %
          turboquant_rvq        45.9 (45.9-45.9)     98.5   54.4 %       3.88   50.0 (50.0-50.0)   50.0 %
    2238  fp16                  35.0 (35.0-35.0)    100.0  100.0 %       1.00      100 (100-100)  100.0 %
          turboquant_rvq        26.0 (26.0-26.0)     98.5   74.2 %       3.88   50.0 (50.0-50.0)   50.0 %
  (tok/s: new tokens by prefill and decode together; key ratio: packed vectors only)

The default method: fp16 bytes by all resident bytes, and tokens
  prompt  arm             new tokens  key ratio resident  KV ratio resident  KV MB  anon peak MB  first token ms
     231  fp16                   120                1.00               1.00    0.2          50.0             232
          turboquant_rvq         120                2.46               1.42    0.1          49.2             232
    2238  fp16                   120                1.00               1.00    0.2          50.0            2239
          turboquant_rvq         120                2.46               1.42    0.1          49.2            2239
  (resident: packed blocks, exact rows, sinks and state, at the same number of tokens)

As published: Qwen3-8B 4 bit, Apple M4, 24 GB; not measured here
  prompt  arm   tok/s median (min-max)  peak MB  vs baseline  key ratio
     231  fp16     17.02 (15.76-17.44)     4725      100.0 %       1.00
          off      14.42 (14.20-14.63)     4637       84.7 %       3.88
          on       14.63 (13.89-15.28)     4648       86.0 %       3.88
    2238  fp16        5.94 (5.67-6.83)     5226      100.0 %       1.00
          off         4.10 (3.87-4.55)     5285       69.1 %       3.88
          on          4.12 (3.68-4.48)     5293       69.4 %       3.88

Arms
  arm             method
  fp16            fp16
  off             turboquant_rvq_published:encode=unfused:read=dequantize
  on              turboquant_rvq_published:encode=fused:read=dequantize
  turboquant_rvq  turboquant_rvq

)golden";
// clang-format on

TEST(RenderPublished, TheTablesAreTheGoldenOnes) {
  const std::string text = RenderText(StoredResult());
  const std::size_t begin = text.find("The published method, this machine");
  const std::size_t end = text.find("Checks\n");
  ASSERT_TRUE(begin != std::string::npos && end != std::string::npos) << text;
  EXPECT_EQ(text.substr(begin, end - begin), kGolden);
}

TEST(RenderPublished, WhatWasPublishedIsNeverInAColumnOfOurs) {
  json result = StoredResult();
  const std::vector<CellTable> measured = MeasuredTables(result);
  const CellTable figures = FiguresTable(result);
  EXPECT_EQ(measured.size(), 4u);
  EXPECT_NE(figures.title.find("Apple M4"), std::string::npos);
  EXPECT_NE(figures.title.find("not measured here"), std::string::npos);
  // Other figures change their table and nothing else.
  result["protocol"]["published"]["figures"]["rows"][0]["tok_s"] = 16.99;
  const std::vector<CellTable> again = MeasuredTables(result);
  for (std::size_t i = 0; i < measured.size(); ++i) EXPECT_EQ(again[i].rows, measured[i].rows);
  EXPECT_NE(FiguresTable(result).rows, figures.rows);
}

TEST(RenderPublished, AbsentPartsAreDashes) {
  json result = StoredResult();
  result["memory"] = json::array();
  for (json& row : result["rows"]) {
    if (row["phase"] == "generate") row["ratios"]["key_ratio_published"] = nullptr;
    if (row["phase"] == "decode") row["phase"] = "gone";
  }
  const CellTable table = MeasuredTables(result)[0];
  EXPECT_EQ(table.rows[0][3], "-");  // peak
  EXPECT_EQ(table.rows[0][5], "-");  // key ratio
  EXPECT_EQ(table.rows[0][6], "-");  // decode alone
  EXPECT_EQ(table.rows[0][7], "-");
}

TEST(RenderPublished, RepeatsThatDifferShowTheirRange) {
  json result = StoredResult();
  for (json& row : result["rows"]) row["new_tokens"] = {120, 61, 120, 120, 120};
  EXPECT_EQ(MeasuredTables(result)[1].rows[0][2], "61-120");
}

TEST(RenderPublished, HtmlHasTheSameCells) {
  const json result = StoredResult();
  const std::string html = RenderHtml(result);
  std::vector<CellTable> tables = MeasuredTables(result);
  tables.push_back(FiguresTable(result));
  tables.push_back(ArmsTable(result));
  std::size_t at = 0;
  for (const CellTable& table : tables) {
    at = html.find("<h2>" + table.title + "</h2>", at);
    ASSERT_NE(at, std::string::npos) << table.title;
    for (const std::vector<std::string>& row : table.rows) {
      for (const std::string& cell : row) {
        at = html.find(">" + cell + "</td>", at);
        ASSERT_NE(at, std::string::npos) << table.title << ": " << cell;
      }
    }
  }
  EXPECT_EQ(html.find("slope"), std::string::npos);  // no line from two lengths
  EXPECT_NE(html.find("identical tokens, fused encode off and on"), std::string::npos);
}

}  // namespace
}  // namespace kvant::bench

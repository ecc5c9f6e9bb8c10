// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What a stored result looks like as text and as HTML. Both are made from the JSON alone, so the
// JSON goes through its text form first.

#include <gtest/gtest.h>

#include <vector>

#include "bench/harness/progress.h"
#include "bench/harness/render_html.h"
#include "bench/harness/render_text.h"
#include "bench/harness/svg_chart.h"
#include "bench/harness/test_fakes.h"

namespace kvant::bench {
namespace {

using nlohmann::json;
using test::FakeBench;

json StoredResult() {
  FakeBench bench({"fp16", "m"});
  bench.config.lengths = {231, 1024};
  bench.runner.costs["m"] = {0.002, 0.012, 0.5e-6};
  bench.peak_bytes["m"] = 80'000'000;
  bench.runner.factor = [](const Arm& arm, std::size_t) { return arm.name == "fp16/b" ? 1.01 : 1; };
  return json::parse(bench.Run().dump());
}

// clang-format off
constexpr const char* kGolden = R"golden(kvant bench, protocol honest
  model    fake (F32), 0.0 MB, 1 layers, 1 query / 1 KV heads of 64
  machine  Fake CPU, 2 processors, 2 threads, kernel scalar; reads 10.0 GB/s, so the weights in 0.0001 ms
  build    kvant 0.1.0 abc, GNU 12, Release

Speed: median (min-max) of 6 rounds, tokens counted at the sampler
  length  arm        prefill tok/s    first token ms      decode tok/s  decode against baseline
     231  fp16/a  1000 (1000-1000)     232 (232-232)  97.1 (97.1-97.1)  A/A +-1.0 %
          fp16/b     990 (990-990)     234 (234-234)  96.2 (96.2-96.2)  A/A +-1.0 %
          m          500 (500-500)     463 (463-463)  82.3 (82.3-82.3)  0.852 x, slower
    1024  fp16/a  1000 (1000-1000)  1025 (1025-1025)  90.2 (90.2-90.2)  A/A +-1.0 %
          fp16/b     990 (990-990)  1035 (1035-1035)  89.3 (89.3-89.3)  A/A +-1.0 %
          m          500 (500-500)  2049 (2049-2049)  79.7 (79.7-79.7)  0.888 x, slower

Decode step = intercept + slope x context [95 % interval]
  arm     ns per cached token       intercept ms  slope ratio  faster than baseline
  fp16/a    1000 [1000, 1000]  10.0 [10.0, 10.0]        0.995  baseline
  fp16/b    1010 [1010, 1010]  10.1 [10.1, 10.1]         1.00  baseline
  m            500 [500, 500]  12.0 [12.0, 12.0]        0.498  from 3861 tokens (extrapolated)

Memory: MB of 1e6 bytes, one process for each arm and length
  length  arm     process peak  anonymous peak  KV payload  KV resident  peak against baseline
     231  fp16/a         100.0            50.0         0.2          0.3  baseline
          fp16/b         100.0            50.0         0.2          0.3  baseline
          m               80.0            40.0         0.2          0.3  0.8 x, smaller
    1024  fp16/a         100.0            50.0         1.0          1.1  baseline
          fp16/b         100.0            50.0         1.0          1.1  baseline
          m               80.0            40.0         1.0          1.1  0.8 x, smaller

Checks
  ok    contention             calibration drift 0.0 %, steal 0.0 %, waiting 0.0 %, other processes
                               0.00 of 2 processors
  ok    build                  commit abc
  ok    decode steps           128 steps after the first token in every run, counted at the sampler
  ok    rounds                 6 interleaved rounds in balanced order after 1 discarded
  ok    identical repeats      every repeat of an arm gave the same tokens
  ok    identical A/A          fp16/a and fp16/b gave the same tokens
  ok    kernels                attend/fp16/scalar, attend/m/scalar
  ok    packed tokens          no arm stores packed tokens at these lengths
  ok    memory processes       6 processes, one for each arm and length
  ok    degenerate output      no output repeats itself
  note  storage                fp16/a exact, fp16/b exact, m exact
  note  first different token  m at 231: none, m at 1024: none

Again: kvant bench --fake
RESULT: 10 of 10 checks passed
)golden";
// clang-format on

TEST(RenderText, IsTheGoldenText) { EXPECT_EQ(RenderText(StoredResult()), kGolden); }

TEST(RenderText, TheLastLineIsTheVerdict) {
  json result = StoredResult();
  const std::string good = RenderText(result);
  EXPECT_EQ(good.substr(good.rfind('\n', good.size() - 2) + 1), "RESULT: 10 of 10 checks passed\n");
  result["verdict"] = {{"status", "not a result"}, {"sentence", "contention: steal time 9 %"}};
  const std::string bad = RenderText(result);
  EXPECT_EQ(bad.substr(bad.rfind('\n', bad.size() - 2) + 1),
            "NOT A RESULT: contention: steal time 9 %\n");
}

TEST(RenderText, NoDifferenceIsNeverAGain) {
  json result = StoredResult();
  for (json& row : result["rows"]) {
    if (row["arm"] != "m") continue;
    row["against_baseline"] = {
        {"ratio", 1.5}, {"noise", {0.5, 2.0}}, {"verdict", "no difference seen"}};
  }
  const std::string text = RenderText(result);
  EXPECT_NE(text.find("no difference seen"), std::string::npos);
  EXPECT_EQ(text.find("1.5 x"), std::string::npos);
}

TEST(RenderText, AbsentPartsAreSaid) {
  FakeBench bench;
  bench.config.lengths = {231};
  bench.config.protocol.decode_steps = 16;
  bench.config.protocol.memory_processes = false;
  const std::string text = RenderText(bench.Run());
  EXPECT_NE(text.find("no decode number"), std::string::npos);
  EXPECT_NE(text.find("Memory: not measured"), std::string::npos);
  EXPECT_NE(text.find("no line, it needs two lengths"), std::string::npos);
}

TEST(RenderText, NumbersKeepThreeDigits) {
  EXPECT_EQ(Number(1234.56), "1235");
  EXPECT_EQ(Number(98.76), "98.8");
  EXPECT_EQ(Number(7.314), "7.31");
  EXPECT_EQ(Number(0.01234), "0.0123");
  EXPECT_EQ(Number(0), "0");
  EXPECT_EQ(Number(9.9999), "10.0");
  EXPECT_EQ(Number(99.96), "100");
  EXPECT_EQ(Number(-12.34), "-12.3");
  EXPECT_EQ(Megabytes(98362432), "98.4");
}

TEST(RenderText, TablesAlignAndTextWraps) {
  TextTable table({TextTable::Align::kLeft, TextTable::Align::kRight});
  table.AddRow({"a", "n"});
  table.AddRow({"long", "12345"});
  EXPECT_EQ(table.ToString(), "  a         n\n  long  12345\n");
  EXPECT_EQ(WrapText("one two three", 8), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(WrapText("a_very_long_word b", 4), (std::vector<std::string>{"a_very_long_word", "b"}));
  EXPECT_EQ(WrapText("", 4), std::vector<std::string>{""});
}

// Every element is closed in order; void elements of HTML excepted.
void ExpectBalanced(const std::string& html) {
  std::vector<std::string> open;
  for (std::size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const std::size_t end = html.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = html.substr(at + 1, end - at - 1);
    if (tag[0] == '!' || tag.back() == '/') continue;
    const std::string name = tag.substr(tag[0] == '/', tag.find(' ') - (tag[0] == '/'));
    if (name == "meta") continue;
    if (tag[0] != '/') {
      open.push_back(name);
      continue;
    }
    ASSERT_FALSE(open.empty()) << tag;
    ASSERT_EQ(open.back(), name);
    open.pop_back();
  }
  EXPECT_TRUE(open.empty());
}

TEST(RenderHtml, IsOneSelfContainedPage) {
  const json result = StoredResult();
  const std::string html = RenderHtml(result);
  ExpectBalanced(html);
  for (const char* forbidden : {"http", "<script", "src=", "href=", "@import", "url("}) {
    EXPECT_EQ(html.find(forbidden), std::string::npos) << forbidden;
  }
  for (const char* part :
       {"<!DOCTYPE html>", "width=device-width", "prefers-color-scheme: dark", "@media print",
        "Decode speed against context", "Decode step against context",
        "Peak memory of the process against context", "ns per cached token", "calibration drift",
        "kvant bench --fake", "Fake CPU", "0.852 x, slower", "sum at once"}) {
    EXPECT_NE(html.find(part), std::string::npos) << part;
  }
}

TEST(RenderHtml, EscapesWhatItWasGiven) {
  json result = StoredResult();
  result["model"]["name"] = "<b>&\"'";
  result["command"] = "kvant bench --arms 'a;b' <x>";
  const std::string html = RenderHtml(result);
  ExpectBalanced(html);
  EXPECT_EQ(html.find("<b>&\""), std::string::npos);
  EXPECT_NE(html.find("&lt;b&gt;&amp;&quot;&#39;"), std::string::npos);
  EXPECT_NE(html.find("&#39;a;b&#39; &lt;x&gt;"), std::string::npos);
}

TEST(Chart, AxesBeginAtZeroAndCoverTheData) {
  for (const double max : {0.003, 1.0, 7.0, 97.4, 1250.0, 99999.0}) {
    const std::vector<double> ticks = RoundTicks(max);
    EXPECT_EQ(ticks.front(), 0);
    EXPECT_GE(ticks.back(), max * (1 - 1e-9));
    EXPECT_LE(ticks.size(), 8u);
    EXPECT_GE(ticks.size(), 4u);
  }
  EXPECT_EQ(RenderChart({}), "");
}

TEST(Progress, LinesTellPartAndTimeLeft) {
  EXPECT_EQ(MinutesAndSeconds(65.4), "1:05");
  EXPECT_EQ(MinutesAndSeconds(-3), "0:00");
  EXPECT_EQ(ProgressLine(30, 120, "round 1", false), " 25 %  1:30 left  round 1");
  EXPECT_EQ(ProgressLine(30, 120, "x", true), "[#####---------------]  25 %  1:30 left  x");
  EXPECT_EQ(ProgressLine(0, 0, "x", false), "  0 %  0:00 left  x");
}

}  // namespace
}  // namespace kvant::bench

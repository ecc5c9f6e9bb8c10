// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/process_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <thread>

#include "kvant/error.h"

namespace kvant::bench {
namespace {

TEST(ProcessMemory, ReadsTheKernelsText) {
  const std::string status =
      "Name:\tkvant\nVmHWM:\t   12345 kB\nVmRSS:\t   1000 kB\nRssAnon:\t     112 kB\n";
  EXPECT_EQ(ParseStatusBytes(status, "VmHWM"), 12345u * 1024);
  EXPECT_EQ(ParseStatusBytes(status, "RssAnon"), 112u * 1024);
  EXPECT_EQ(ParseStatusBytes(status, "Rss"), 0u);  // not a prefix
  EXPECT_GT(ReadStatusBytes("VmHWM"), 0u);
}

TEST(ProcessMemory, TheSamplerSeesMemoryThatIsGoneAtTheEnd) {
  constexpr std::uint64_t kBytes = std::uint64_t{96} << 20;
  RssAnonSampler sampler;
  const std::uint64_t before = ReadStatusBytes("RssAnon");
  // Mapped directly: an allocator may keep what it is given back.
  void* pages = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  std::memset(pages, 1, kBytes);
  const std::size_t seen = sampler.n_samples();
  while (sampler.n_samples() < seen + 2) std::this_thread::yield();
  munmap(pages, kBytes);
  EXPECT_GE(sampler.peak_bytes(), before + kBytes * 9 / 10);
  EXPECT_LT(ReadStatusBytes("RssAnon") + kBytes / 2, sampler.peak_bytes());
}

TEST(MemoryReport, SurvivesJson) {
  MemoryReport report;
  report.vm_hwm_bytes = 5'000'000'000;
  report.rss_anon_peak_bytes = 7;
  report.phases["load"] = {{{"weights", 3}}, 4};
  report.kv.spec = "fp16";
  report.kv.payload_bytes = 11;
  report.storage = "exact";
  const MemoryReport back = MemoryReportFromJson(MemoryReportToJson(report));
  EXPECT_EQ(back.vm_hwm_bytes, 5'000'000'000u);
  EXPECT_EQ(back.rss_anon_peak_bytes, 7u);
  EXPECT_EQ(back.phases.at("load").by_tag.at("weights"), 3u);
  EXPECT_EQ(back.phases.at("load").total, 4u);
  EXPECT_EQ(back.kv.payload_bytes, 11u);
  EXPECT_EQ(back.storage, "exact");
  nlohmann::json broken = MemoryReportToJson(report);
  broken.erase("kv");
  EXPECT_THROW(MemoryReportFromJson(broken), Error);
}

TEST(CaptureProcess, GivesStdoutOfASuccessfulProcess) {
  EXPECT_EQ(CaptureProcess({"/bin/sh", "-c", "echo noise >&2; printf '{\"a\": 1}'"}, nullptr),
            "{\"a\": 1}");
  // More than a pipe holds on both sides: nothing may block.
  const std::string script = "head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero";
  EXPECT_EQ(CaptureProcess({"/bin/sh", "-c", script}, nullptr).size(), 300000u);
}

TEST(CaptureProcess, AFailureCarriesItsLastLine) {
  try {
    CaptureProcess({"/bin/sh", "-c", "echo progress >&2; echo 'kvant: no memory' >&2; exit 2"},
                   nullptr);
    FAIL() << "a failed process was taken for a good one";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCheckFailed);
    EXPECT_NE(std::string(error.what()).find("status 2: kvant: no memory"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW(CaptureProcess({"/nonexistent/kvant"}, nullptr), Error);
}

TEST(CaptureProcess, CancelEndsTheProcess) {
  const std::atomic<bool> cancel{true};
  try {
    CaptureProcess({"/bin/sleep", "600"}, &cancel);
    FAIL() << "was not cancelled";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCancelled);
  }
}

}  // namespace
}  // namespace kvant::bench

// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "backend/cuda/cuda.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

static_assert(!std::is_copy_constructible_v<Stream> && std::is_nothrow_move_constructible_v<Stream>);
static_assert(!std::is_copy_constructible_v<Event> && std::is_nothrow_move_constructible_v<Event>);
static_assert(!std::is_copy_constructible_v<DeviceBuffer> &&
              std::is_nothrow_move_constructible_v<DeviceBuffer>);

std::vector<std::uint8_t> RandomBytes(std::size_t n) {
  SplitMix64 rng = test::TestRng();
  std::vector<std::uint8_t> bytes(n);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(rng.Next());
  return bytes;
}

TEST(CudaWithoutDevice, SaysWhyAndRefuses) {
  if (CudaAvailable()) {
    EXPECT_EQ(CudaUnavailableReason(), "");
    EXPECT_FALSE(CudaDevices().empty());
    return;
  }
  EXPECT_NE(CudaUnavailableReason(), "");
  EXPECT_TRUE(CudaDevices().empty());
  for (const auto& make : {+[] { Stream stream; }, +[] { Event event; }, +[] { DeviceBuffer buffer(64); },
                           +[] { MeasureCopyBandwidth(1 << 20, 1); }}) {
    try {
      make();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
      EXPECT_NE(std::string(error.what()).find("CUDA"), std::string::npos) << error.what();
    }
  }
}

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!CudaAvailable()) GTEST_SKIP() << "no CUDA device: " << CudaUnavailableReason();
  }
};

TEST_F(CudaDeviceTest, DevicesHaveANameAndMemory) {
  for (const CudaDevice& device : CudaDevices()) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_GE(device.compute_major, 5);
    EXPECT_GT(device.multiprocessors, 0);
    EXPECT_GT(device.memory_bytes, std::uint64_t{1} << 28);
  }
}

TEST_F(CudaDeviceTest, DataSurvivesTheRoundTripOnEveryDevice) {
  for (const CudaDevice& device : CudaDevices()) {
    const std::vector<std::uint8_t> sent = RandomBytes((1 << 20) + 13);
    std::vector<std::uint8_t> received(sent.size(), 0);
    const Stream stream(device.index);
    DeviceBuffer buffer(sent.size(), device.index);
    CopyToDevice(buffer, 0, sent.data(), sent.size(), stream);
    CopyFromDevice(received.data(), buffer, 0, received.size(), stream);
    stream.Synchronize();
    EXPECT_EQ(received, sent) << "device " << device.index;
  }
}

TEST_F(CudaDeviceTest, OffsetsAddressSingleBytes) {
  const std::vector<std::uint8_t> sent = RandomBytes(300);
  std::vector<std::uint8_t> received(101, 0);
  const Stream stream;
  DeviceBuffer buffer(sent.size());
  CopyToDevice(buffer, 0, sent.data(), 150, stream);
  CopyToDevice(buffer, 150, sent.data() + 150, 150, stream);
  CopyFromDevice(received.data(), buffer, 99, received.size(), stream);
  stream.Synchronize();
  EXPECT_EQ(received, std::vector<std::uint8_t>(sent.begin() + 99, sent.begin() + 200));
}

TEST_F(CudaDeviceTest, CopiesPastTheEndAreRefused) {
  const Stream stream;
  DeviceBuffer buffer(64);
  std::vector<std::uint8_t> host(128);
  EXPECT_THROW(CopyToDevice(buffer, 0, host.data(), 65, stream), Error);
  EXPECT_THROW(CopyToDevice(buffer, 64, host.data(), 1, stream), Error);
  EXPECT_THROW(CopyFromDevice(host.data(), buffer, SIZE_MAX, 2, stream), Error);
  EXPECT_NO_THROW(CopyToDevice(buffer, 64, host.data(), 0, stream));
}

TEST_F(CudaDeviceTest, MovedBuffersKeepTheirContent) {
  const std::vector<std::uint8_t> sent = RandomBytes(64);
  std::vector<std::uint8_t> received(64, 0);
  Stream stream;
  DeviceBuffer first(64);
  CopyToDevice(first, 0, sent.data(), 64, stream);
  DeviceBuffer second(std::move(first));
  DeviceBuffer third(8);
  third = std::move(second);
  Stream moved(std::move(stream));
  CopyFromDevice(received.data(), third, 0, 64, moved);
  moved.Synchronize();
  EXPECT_EQ(received, sent);
}

TEST_F(CudaDeviceTest, TooMuchMemoryIsRefusedAndTheDeviceStaysUsable) {
  try {
    DeviceBuffer buffer(std::size_t{1} << 60);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted) << error.what();
    EXPECT_NE(std::string(error.what()).find("cuda.cu:"), std::string::npos) << error.what();
  }
  EXPECT_NO_THROW(DeviceBuffer(64));
}

TEST_F(CudaDeviceTest, EventsMeasureAndBandwidthIsPositive) {
  const Stream stream;
  Event begin, end;
  begin.Record(stream);
  end.Record(stream);
  EXPECT_GE(end.MillisecondsSince(begin), 0.0f);
  const CopyBandwidth rate = MeasureCopyBandwidth(1 << 22, 3);
  EXPECT_GT(rate.to_device, 0);
  EXPECT_GT(rate.from_device, 0);
  EXPECT_GT(rate.within_device, 0);
  EXPECT_THROW(MeasureCopyBandwidth(16, 3), Error);
}

}  // namespace
}  // namespace kvant

// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// cuda.h for a build without CUDA: no device is there, and whoever goes on regardless is told why.

#include "backend/cuda/cuda.h"
#include "base/error.h"

namespace kvant {
namespace {

[[noreturn]] void NoCuda(const char* what) {
  Fail(ErrorCode::kUnsupported,
       "{} needs CUDA and this build has none; configure with -DKVANT_CUDA=ON where nvcc is installed, "
       "or use --device cpu",
       what);
}

}  // namespace

bool CudaAvailable() noexcept { return false; }
std::string CudaUnavailableReason() { return "this build has no CUDA"; }
std::vector<CudaDevice> CudaDevices() { return {}; }

// The constructors throw, so no object exists and nothing below them can be reached with one.
Stream::Stream(int) { NoCuda("a stream"); }
Stream::~Stream() = default;
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;
void Stream::Synchronize() const { NoCuda("a stream"); }

Event::Event(int) { NoCuda("an event"); }
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;
void Event::Record(const Stream&) { NoCuda("an event"); }
void Event::Synchronize() const { NoCuda("an event"); }
float Event::MillisecondsSince(const Event&) const { NoCuda("an event"); }

DeviceBuffer::DeviceBuffer(std::size_t, int) { NoCuda("device memory"); }
DeviceBuffer::~DeviceBuffer() = default;
DeviceBuffer::DeviceBuffer(DeviceBuffer&&) noexcept = default;
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&&) noexcept = default;

void CopyToDevice(DeviceBuffer&, std::size_t, const void*, std::size_t, const Stream&) {
  NoCuda("a copy to a device");
}
void CopyFromDevice(void*, const DeviceBuffer&, std::size_t, std::size_t, const Stream&) {
  NoCuda("a copy from a device");
}
CopyBandwidth MeasureCopyBandwidth(std::size_t, int, int) { NoCuda("a bandwidth measurement"); }

}  // namespace kvant

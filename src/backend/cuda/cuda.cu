// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// cuda.h on the CUDA runtime.

#include "backend/cuda/cuda.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "backend/cuda/cuda_check.cuh"
#include "kvant/error.h"

namespace kvant {
namespace {

/// Makes a device current for the calls that follow in this scope, then restores the one before.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    KVANT_CUDA_CHECK(cudaGetDevice(&previous_));
    if (device != previous_) KVANT_CUDA_CHECK(cudaSetDevice(device));
  }
  ~CurrentDevice() { cudaSetDevice(previous_); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int previous_ = 0;
};

cudaStream_t Native(const Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }

/// Host memory that the device can read directly; copies from other memory are staged and slower.
class PinnedBuffer {
 public:
  explicit PinnedBuffer(std::size_t bytes) { KVANT_CUDA_CHECK(cudaMallocHost(&data_, bytes)); }
  ~PinnedBuffer() { cudaFreeHost(data_); }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

void CheckRange(std::size_t offset, std::size_t bytes, std::size_t size) {
  if (offset > size || bytes > size - offset) {
    throw Error(ErrorCode::kInvalidArgument,
                "a copy of " + std::to_string(bytes) + " bytes at offset " + std::to_string(offset) +
                    " passes the end of a device buffer of " + std::to_string(size) +
                    " bytes; copy less");
  }
}

void CheckSameDevice(int buffer, const Stream& stream) {
  if (buffer != stream.device()) {
    throw Error(ErrorCode::kInvalidArgument,
                "a buffer of device " + std::to_string(buffer) + " was given to a stream of device " +
                    std::to_string(stream.device()) + "; use a stream of the same device");
  }
}

/// Median bytes per second of `repeats` timed runs of `copy`, after one that is not timed.
template <typename Copy>
double MedianRate(double bytes, int repeats, const Stream& stream, Copy copy) {
  std::vector<double> rates;
  Event begin(stream.device()), end(stream.device());
  for (int i = 0; i <= repeats; ++i) {
    begin.Record(stream);
    copy();
    end.Record(stream);
    const double seconds = end.MillisecondsSince(begin) * 1e-3;
    if (i > 0) rates.push_back(bytes / seconds);
  }
  std::nth_element(rates.begin(), rates.begin() + repeats / 2, rates.end());
  return rates[static_cast<std::size_t>(repeats) / 2];
}

}  // namespace

void CudaCallFailed(cudaError_t error, const char* call, const char* file, int line) {
  cudaGetLastError();  // what can be cleared is cleared, so that the next call does not report it again
  std::string_view path(file);
  if (const auto slash = path.rfind('/'); slash != std::string_view::npos) {
    path.remove_prefix(slash + 1);
  }
  ErrorCode code = ErrorCode::kInternal;
  if (error == cudaErrorMemoryAllocation) code = ErrorCode::kResourceExhausted;
  if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ||
      error == cudaErrorInvalidDevice || error == cudaErrorNoKernelImageForDevice) {
    code = ErrorCode::kUnsupported;
  }
  throw Error(code, std::string("the CUDA call ") + call + " failed with " + cudaGetErrorName(error) +
                        " (" + cudaGetErrorString(error) + ") at " + std::string(path) + ":" +
                        std::to_string(line));
}

bool CudaAvailable() noexcept {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return count > 0;
}

std::string CudaUnavailableReason() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess) return count > 0 ? "" : "the driver shows no CUDA device";
  cudaGetLastError();
  return std::string("CUDA cannot be used here: ") + cudaGetErrorString(error);
}

std::vector<CudaDevice> CudaDevices() {
  std::vector<CudaDevice> devices;
  if (!CudaAvailable()) return devices;
  int count = 0;
  KVANT_CUDA_CHECK(cudaGetDeviceCount(&count));
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    KVANT_CUDA_CHECK(cudaGetDeviceProperties(&properties, i));
    devices.push_back({.index = i,
                       .name = properties.name,
                       .compute_major = properties.major,
                       .compute_minor = properties.minor,
                       .multiprocessors = properties.multiProcessorCount,
                       .memory_bytes = properties.totalGlobalMem});
  }
  return devices;
}

Stream::Stream(int device) : device_(device) {
  const CurrentDevice current(device);
  cudaStream_t stream = nullptr;
  KVANT_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  native_ = stream;
}

Stream::~Stream() {
  if (native_ != nullptr) cudaStreamDestroy(static_cast<cudaStream_t>(native_));
}

Stream::Stream(Stream&& other) noexcept
    : native_(std::exchange(other.native_, nullptr)), device_(other.device_) {}

Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(native_, other.native_);
  std::swap(device_, other.device_);
  return *this;
}

void Stream::Synchronize() const { KVANT_CUDA_CHECK(cudaStreamSynchronize(Native(*this))); }

Event::Event(int device) : device_(device) {
  const CurrentDevice current(device);
  cudaEvent_t event = nullptr;
  KVANT_CUDA_CHECK(cudaEventCreate(&event));
  native_ = event;
}

Event::~Event() {
  if (native_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(native_));
}

Event::Event(Event&& other) noexcept
    : native_(std::exchange(other.native_, nullptr)), device_(other.device_) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(native_, other.native_);
  std::swap(device_, other.device_);
  return *this;
}

void Event::Record(const Stream& stream) {
  KVANT_CUDA_CHECK(cudaEventRecord(static_cast<cudaEvent_t>(native_), Native(stream)));
}

void Event::Synchronize() const {
  KVANT_CUDA_CHECK(cudaEventSynchronize(static_cast<cudaEvent_t>(native_)));
}

float Event::MillisecondsSince(const Event& start) const {
  Synchronize();
  float milliseconds = 0;
  KVANT_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(start.native_),
                                        static_cast<cudaEvent_t>(native_)));
  return milliseconds;
}

DeviceBuffer::DeviceBuffer(std::size_t bytes, int device) : bytes_(bytes), device_(device) {
  if (bytes == 0) return;
  const CurrentDevice current(device);
  KVANT_CUDA_CHECK(cudaMalloc(&data_, bytes));
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) cudaFree(data_);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      device_(other.device_) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(device_, other.device_);
  return *this;
}

void CopyToDevice(DeviceBuffer& target, std::size_t offset, const void* source, std::size_t bytes,
                  const Stream& stream) {
  CheckRange(offset, bytes, target.bytes());
  CheckSameDevice(target.device(), stream);
  if (bytes == 0) return;
  KVANT_CUDA_CHECK(cudaMemcpyAsync(static_cast<char*>(target.data()) + offset, source, bytes,
                                   cudaMemcpyHostToDevice, Native(stream)));
}

void CopyFromDevice(void* target, const DeviceBuffer& source, std::size_t offset, std::size_t bytes,
                    const Stream& stream) {
  CheckRange(offset, bytes, source.bytes());
  CheckSameDevice(source.device(), stream);
  if (bytes == 0) return;
  KVANT_CUDA_CHECK(cudaMemcpyAsync(target, static_cast<const char*>(source.data()) + offset, bytes,
                                   cudaMemcpyDeviceToHost, Native(stream)));
}

CopyBandwidth MeasureCopyBandwidth(std::size_t bytes, int repeats, int device) {
  constexpr std::size_t kMinBytes = 1 << 20;
  if (bytes < kMinBytes || repeats < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "a copy bandwidth was asked for with " + std::to_string(bytes) + " bytes and " +
                    std::to_string(repeats) + " repeats; at least " + std::to_string(kMinBytes) +
                    " bytes and 1 repeat are needed");
  }
  const CurrentDevice current(device);
  const Stream stream(device);
  DeviceBuffer first(bytes, device), second(bytes, device);
  const PinnedBuffer host(bytes);
  std::fill_n(static_cast<unsigned char*>(host.data()), bytes, static_cast<unsigned char>(1));
  const double size = static_cast<double>(bytes);
  return {.to_device = MedianRate(size, repeats, stream,
                                  [&] { CopyToDevice(first, 0, host.data(), bytes, stream); }),
          .from_device = MedianRate(size, repeats, stream,
                                    [&] { CopyFromDevice(host.data(), first, 0, bytes, stream); }),
          .within_device = MedianRate(2 * size, repeats, stream, [&] {
            KVANT_CUDA_CHECK(cudaMemcpyAsync(second.data(), first.data(), bytes,
                                             cudaMemcpyDeviceToDevice, Native(stream)));
          })};
}

}  // namespace kvant

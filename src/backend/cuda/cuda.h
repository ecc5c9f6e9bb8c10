// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The CUDA runtime as kvant sees it: devices, streams, events, device memory, copies. It includes no CUDA
// header, so any file may include it; without CUDA, cuda_stub.cc supplies the same symbols. It is not a
// kernel launcher: kernels live beside their codec in .cu files, which turn a Stream into a cudaStream_t
// with a cast of native().
//
// Every failing CUDA call throws Error that names the call and its place; device memory that is not there
// is kResourceExhausted, a missing device or a build without CUDA is kUnsupported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kvant {

struct CudaDevice {
  int index = 0;
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  int multiprocessors = 0;
  std::uint64_t memory_bytes = 0;
};

/// True when this build has CUDA and the driver shows at least one device. Never throws.
bool CudaAvailable() noexcept;

/// Why CudaAvailable() is false, as half a sentence ("this build has no CUDA"); empty when it is true.
std::string CudaUnavailableReason();

/// Every device that the driver shows; empty when there is none or the build has no CUDA.
std::vector<CudaDevice> CudaDevices();

/// A stream of a device. Work given to one stream runs in order.
class Stream {
 public:
  explicit Stream(int device = 0);
  ~Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Waits for everything given to the stream, and throws what any of it failed with.
  void Synchronize() const;
  int device() const { return device_; }
  void* native() const { return native_; }  // a cudaStream_t

 private:
  void* native_ = nullptr;
  int device_ = 0;
};

/// A point in a stream's work, with a time.
class Event {
 public:
  explicit Event(int device = 0);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void Record(const Stream& stream);
  /// Waits until the stream has reached the event.
  void Synchronize() const;
  /// Milliseconds from `start` to this event; both must have been recorded. Waits for this event.
  float MillisecondsSince(const Event& start) const;
  int device() const { return device_; }
  void* native() const { return native_; }  // a cudaEvent_t

 private:
  void* native_ = nullptr;
  int device_ = 0;
};

/// Memory of a device, aligned to 256 bytes, not zeroed.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t bytes, int device = 0);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  std::size_t bytes() const { return bytes_; }
  int device() const { return device_; }
  void* data() { return data_; }  // a device pointer; never read on the host
  const void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  int device_ = 0;
};

/// Queues a copy of `bytes` from host memory to `target` at `offset` bytes. The host memory must stay as
/// it is until the stream has run it. Throws kInvalidArgument when it would pass the buffer's end.
void CopyToDevice(DeviceBuffer& target, std::size_t offset, const void* source, std::size_t bytes,
                  const Stream& stream);

/// Queues a copy of `bytes` at `offset` of `source` to host memory, which is valid after Synchronize.
void CopyFromDevice(void* target, const DeviceBuffer& source, std::size_t offset, std::size_t bytes,
                    const Stream& stream);

struct CopyBandwidth {  // bytes per second, the median of the repeats
  double to_device = 0;
  double from_device = 0;
  double within_device = 0;  // each byte read and written once counts twice
};

/// Copies `bytes` (at least 1 MiB) back and forth `repeats` times with pinned host memory.
CopyBandwidth MeasureCopyBandwidth(std::size_t bytes, int repeats, int device = 0);

}  // namespace kvant

// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/fingerprint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/hash.h"

namespace kvant {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kWhole = 128 * kMiB;
constexpr std::uint64_t kSample = kMiB / 16;

[[noreturn]] void FailToRead(const std::string& path) {
  Fail(ErrorCode::kNotFound, "cannot read '{}' to tell which model it is; check that it is still there",
       path);
}

// read, not mmap: a sixteenth of a large file must not count as memory of this process.
class OpenFile {
 public:
  explicit OpenFile(const std::string& path)
      : path_(path), descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) FailToRead(path_);
  }
  ~OpenFile() { close(descriptor_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  void Read(std::uint64_t offset, std::span<std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n <= 0) FailToRead(path_);
      offset += static_cast<std::uint64_t>(n);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }

 private:
  const std::string& path_;
  int descriptor_;
};

}  // namespace

bool operator==(const FileStamp& a, const FileStamp& b) {
  return a.device == b.device && a.inode == b.inode && a.bytes == b.bytes &&
         a.modified_ns == b.modified_ns;
}

FileStamp StampOf(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) FailToRead(path);
  return {.device = static_cast<std::uint64_t>(status.st_dev),
          .inode = static_cast<std::uint64_t>(status.st_ino),
          .bytes = static_cast<std::uint64_t>(status.st_size),
          .modified_ns = std::int64_t{status.st_mtim.tv_sec} * 1000000000 + status.st_mtim.tv_nsec};
}

std::uint64_t FileFingerprint(const std::string& path) {
  const std::uint64_t n_bytes = StampOf(path).bytes;
  const OpenFile file(path);
  Hash64 hash;
  hash.Update(std::as_bytes(std::span(&n_bytes, 1)));
  std::vector<std::byte> piece(kMiB);
  for (std::uint64_t offset = 0; offset < n_bytes; offset += kMiB) {
    const std::uint64_t n = std::min(offset < kWhole ? kMiB : kSample, n_bytes - offset);
    const auto bytes = std::span(piece).first(n);
    file.Read(offset, bytes);
    hash.Update(bytes);
  }
  return hash.Digest();
}

}  // namespace kvant

// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "engine/state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace kvant {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 18;

std::string ErrorText(int error) { return std::generic_category().message(error); }

// Through links, so that a link stays one and its file is replaced.
std::string TargetOf(const std::string& path) {
  std::error_code failed;
  const std::filesystem::path target = std::filesystem::canonical(path, failed);
  return failed ? path : target.string();
}

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : given_(path), target_(TargetOf(path)) {
  struct stat status = {};
  const bool is_there = stat(target_.c_str(), &status) == 0;
  if (path.empty() || path.back() == '/' || (is_there && !S_ISREG(status.st_mode))) {
    Fail(ErrorCode::kInvalidArgument, "cannot save to '{}': it is not a file; give the name of a file",
         path);
  }
  static std::atomic<unsigned> count{0};
  temporary_ = fmt::format("{}.{}-{}.part", target_, getpid(), count++);
  descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) FailToWrite(errno);
  if (is_there) static_cast<void>(fchmod(descriptor_, status.st_mode & 0777));
  buffer_.reserve(kBufferBytes);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(temporary_.c_str());
}

void AtomicFile::FailToWrite(int error) const {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    Fail(ErrorCode::kResourceExhausted,
         "cannot save to '{}': {}; make room or save elsewhere (what was there is still there)", given_,
         ErrorText(error));
  }
  Fail(ErrorCode::kNotFound,
       "cannot save to '{}': {}; give a file in a folder that exists and can be written", given_,
       ErrorText(error));
}

void AtomicFile::Flush() {
  for (std::span<const std::byte> bytes = buffer_; !bytes.empty();) {
    const ssize_t n = write(descriptor_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) FailToWrite(errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  buffer_.clear();
}

void AtomicFile::Write(std::span<const std::byte> bytes) {
  n_bytes_ += bytes.size();
  while (!bytes.empty()) {
    const std::size_t n = std::min(bytes.size(), kBufferBytes - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    bytes = bytes.subspan(n);
    if (buffer_.size() == kBufferBytes) Flush();
  }
}

void AtomicFile::Commit() {
  Flush();
  if (fsync(descriptor_) != 0) FailToWrite(errno);
  if (rename(temporary_.c_str(), target_.c_str()) != 0) FailToWrite(errno);
  close(std::exchange(descriptor_, -1));
  // The new name must survive a crash as well; a file system that cannot do this has done what it can.
  const int folder = open(FolderOf(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  static_cast<void>(fsync(folder));
  close(folder);
}

InputFile::InputFile(const std::string& path)
    : path_(path), descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (descriptor_ < 0) {
    Fail(ErrorCode::kNotFound, "cannot load '{}': {}; give a file that --save or /save wrote", path,
         ErrorText(errno));
  }
  struct stat status = {};
  if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(descriptor_);
    Fail(ErrorCode::kInvalidArgument,
         "cannot load '{}': it is not a file; give a file that --save or /save wrote", path);
  }
  n_bytes_ = static_cast<std::uint64_t>(status.st_size);
  buffer_.resize(kBufferBytes);
}

InputFile::~InputFile() { close(descriptor_); }

void InputFile::Read(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    if (begin_ == end_) {
      const ssize_t n = read(descriptor_, buffer_.data(), buffer_.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        Fail(ErrorCode::kCorruptData, "{}: it ends while it is read ({}); copy it again", path_,
             n < 0 ? ErrorText(errno) : "it has become shorter");
      }
      begin_ = 0;
      end_ = static_cast<std::size_t>(n);
    }
    const std::size_t n = std::min(bytes.size(), end_ - begin_);
    std::memcpy(bytes.data(), buffer_.data() + begin_, n);
    begin_ += n;
    bytes = bytes.subspan(n);
  }
}

}  // namespace kvant

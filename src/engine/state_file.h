// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A file that is written as a whole or not at all, and its reader. Internal to engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kvant {

/// Writes beside the target and takes its place at Commit; what is not committed is removed.
class AtomicFile {
 public:
  /// Throws Error: kInvalidArgument where `path` names something other than a file, kNotFound where its
  /// folder does not take one.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Throws Error(kResourceExhausted) for a full disk, kNotFound for other failures.
  void Write(std::span<const std::byte> bytes);
  /// Everything on the disk, then under the target's name.
  void Commit();
  std::uint64_t n_bytes() const { return n_bytes_; }

 private:
  [[noreturn]] void FailToWrite(int error) const;
  void Flush();

  std::string given_, target_, temporary_;
  int descriptor_ = -1;
  std::vector<std::byte> buffer_;
  std::uint64_t n_bytes_ = 0;
};

class InputFile {
 public:
  /// Throws Error: kNotFound, kInvalidArgument where it is not a file.
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t n_bytes() const { return n_bytes_; }
  /// Fills all of `bytes`. Throws Error(kCorruptData) where the file ends before.
  void Read(std::span<std::byte> bytes);

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t n_bytes_ = 0;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // what of the buffer is not read yet
};

}  // namespace kvant

// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Which model file this is: what saved states and calibration files belong to. Never computed unless one
// of them is written or read.
#pragma once

#include <cstdint>
#include <string>

namespace kvant {

/// The file that a path names now. One that was replaced or rewritten has another stamp.
struct FileStamp {
  std::uint64_t device = 0, inode = 0, bytes = 0;
  std::int64_t modified_ns = 0;
};
bool operator==(const FileStamp& a, const FileStamp& b);
/// Throws Error(kNotFound).
FileStamp StampOf(const std::string& path);

/// XXH64 over the size of the file, its first 128 MiB (metadata, tokenizer, tensor table; all of a small
/// model), and of every later MiB the first 64 KiB, so that a large model costs a sixteenth of its size.
/// Every tensor that a fine-tuning changes is long enough to be hit. Throws Error(kNotFound).
std::uint64_t FileFingerprint(const std::string& path);

}  // namespace kvant

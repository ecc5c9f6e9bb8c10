// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/fingerprint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "kvant/error.h"

namespace kvant {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class FingerprintTest : public testing::Test {
 protected:
  FingerprintTest() : path_("fingerprint_" + std::to_string(getpid())) {}
  ~FingerprintTest() override { std::remove(path_.c_str()); }

  void Write(const std::string& bytes) { std::ofstream(path_, std::ios::binary) << bytes; }
  void WriteByte(std::uint64_t offset, char byte) {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(byte);
  }

  std::string path_;
};

TEST_F(FingerprintTest, EveryByteOfASmallFileCounts) {
  std::string bytes(1000, 'x');
  Write(bytes);
  const std::uint64_t whole = FileFingerprint(path_);
  EXPECT_EQ(FileFingerprint(path_), whole);
  for (const std::size_t at : {0, 1, 500, 999}) {
    std::string other = bytes;
    other[at] = 'y';
    Write(other);
    EXPECT_NE(FileFingerprint(path_), whole) << at;
  }
  Write(bytes + 'x');
  EXPECT_NE(FileFingerprint(path_), whole);
  Write("");
  EXPECT_NE(FileFingerprint(path_), whole);
}

TEST_F(FingerprintTest, LargeFilesAreSampledAfterTheirBeginning) {
  Write("");
  std::filesystem::resize_file(path_, 200 * kMiB + 5);  // sparse
  const std::uint64_t whole = FileFingerprint(path_);
  for (const std::uint64_t counted : {128 * kMiB - 1, 150 * kMiB + 65535, 200 * kMiB + 4}) {
    WriteByte(counted, 'x');
    EXPECT_NE(FileFingerprint(path_), whole) << counted;
    WriteByte(counted, '\0');
  }
  WriteByte(150 * kMiB + 65536, 'x');
  EXPECT_EQ(FileFingerprint(path_), whole) << "between two samples";
}

TEST_F(FingerprintTest, StampsTellFilesApart) {
  Write("x");
  const FileStamp stamp = StampOf(path_);
  EXPECT_TRUE(StampOf(path_) == stamp);
  std::filesystem::rename(path_, path_ + ".old");  // so that the new one gets another inode
  Write("x");
  EXPECT_FALSE(StampOf(path_) == stamp);
  std::remove((path_ + ".old").c_str());
}

TEST_F(FingerprintTest, AMissingFileIsOneSentence) {
  EXPECT_THROW(FileFingerprint("/no/such/file"), Error);
  EXPECT_THROW(StampOf("/no/such/file"), Error);
}

}  // namespace
}  // namespace kvant

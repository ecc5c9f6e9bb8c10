// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Format of the plain16 kernels for fp16; included inside an ISA's namespace, after its Vec.

struct Format {
  static constexpr float kLargest = 65504.0f;
  static Vec LoadRow(const std::uint16_t* p) { return LoadHalf(p); }
  static void StoreRow(std::uint16_t* p, Vec row) { StoreHalf(p, row); }
  static bool IsFinite(std::uint16_t bits) { return IsFiniteBits(bits); }
};

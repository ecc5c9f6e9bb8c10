// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Format of the plain16 kernels for bf16; included inside an ISA's namespace, after its Vec.

struct Format {
  static constexpr float kLargest = 0x1.fep127f;
  static Vec LoadRow(const std::uint16_t* p) { return LoadBFloat16(p); }
  static void StoreRow(std::uint16_t* p, Vec row) { StoreBFloat16(p, row); }
  static bool IsFinite(std::uint16_t bits) { return IsFiniteBits(bits); }
};

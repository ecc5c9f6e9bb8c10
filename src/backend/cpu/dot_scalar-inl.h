// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Integer dot products of four bytes in each lane of a VecU, in plain C++; included after
// vec_scalar-inl.h. The other dot_*-inl.h give the same numbers: sums of products of 8-bit integers
// are exact.
//
// Both factors are -127 to 127 in products with queries (DotQuery). Sums of values take weights of
// 0 to 127 (DotWeights): two such products of bytes fit the 16 bits that AVX2 adds them in.

// Sixteen bytes that a byte of four bits chooses from.
struct ByteTable {
  std::int8_t entry[16];
};

// An instruction set whose dot product wants unsigned levels adds this to a key's table; sums then
// start at -kKeyBias * (sum of the query's bytes).
inline constexpr std::int32_t kKeyBias = 0;

inline ByteTable LoadByteTable(const std::int8_t* p) {
  ByteTable table;
  std::memcpy(table.entry, p, sizeof(table.entry));
  return table;
}
inline ByteTable LoadKeyTable(const std::int8_t* p) { return LoadByteTable(p); }
// table[byte] for the four bytes of each lane; every byte must be below 16.
inline VecU LookupBytes(const ByteTable& table, VecU index) {
  for (int i = 0; i < 16; ++i) {
    std::uint8_t bytes[4];
    std::memcpy(bytes, &index.lane[i], 4);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(table.entry[byte]);
    std::memcpy(&index.lane[i], bytes, 4);
  }
  return index;
}
inline VecU DotBytes(VecU sum, VecU a, VecU b) {
  for (int i = 0; i < 16; ++i) {
    std::int8_t x[4], y[4];
    std::memcpy(x, &a.lane[i], 4);
    std::memcpy(y, &b.lane[i], 4);
    std::int32_t dot = 0;
    for (int j = 0; j < 4; ++j) dot += x[j] * y[j];
    sum.lane[i] += static_cast<std::uint32_t>(dot);
  }
  return sum;
}
// sum + levels . query, lane by lane; levels from a LoadKeyTable.
inline VecU DotQuery(VecU sum, VecU levels, VecU query) { return DotBytes(sum, levels, query); }
// sum + weights . levels, lane by lane; levels from a LoadByteTable.
inline VecU DotWeights(VecU sum, VecU weights, VecU levels) {
  return DotBytes(sum, weights, levels);
}
// sum + weights . digits, lane by lane, for any signed bytes as weights. Like keys' levels they may be taken
// shifted by kKeyBias, which sums pay back.
inline VecU DotSigned(VecU sum, VecU weights, VecU digits) {
  return DotBytes(sum, weights, digits);
}
// Lanes as signed integers.
inline Vec ToFloat(VecU a) {
  Vec r;
  for (int i = 0; i < 16; ++i) r.lane[i] = static_cast<float>(static_cast<std::int32_t>(a.lane[i]));
  return r;
}
// Nearest integers, ties to even; every number must be within -127 to 127. Adding 1.5 * 2^23 leaves
// the integer in the low bits of the sum.
inline void StoreRounded(std::int8_t* p, Vec a) {
  for (int i = 0; i < 16; ++i) {
    const float shifted = a.lane[i] + 12582912.0f;
    std::uint32_t bits;
    std::memcpy(&bits, &shifted, 4);
    p[i] = static_cast<std::int8_t>(bits & 0xff);
  }
}
// The same for 64 numbers.
inline void StoreRounded64(std::int8_t* p, const Vec (&a)[4]) {
  for (int i = 0; i < 4; ++i) StoreRounded(p + i * 16, a[i]);
}

// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Integer dot products of bytes for NEON with FEAT_DotProd; included after vec_neon-inl.h. Meanings:
// dot_scalar-inl.h.

struct ByteTable {
  int8x16_t v;
};

inline constexpr std::int32_t kKeyBias = 0;

inline ByteTable LoadByteTable(const std::int8_t* p) { return {vld1q_s8(p)}; }
inline ByteTable LoadKeyTable(const std::int8_t* p) { return LoadByteTable(p); }
inline uint32x4_t LookupBytes4(const ByteTable& table, uint32x4_t index) {
  return vreinterpretq_u32_s8(vqtbl1q_s8(table.v, vreinterpretq_u8_u32(index)));
}
inline VecU LookupBytes(const ByteTable& table, VecU index) {
  return {LookupBytes4(table, index.q0), LookupBytes4(table, index.q1),
          LookupBytes4(table, index.q2), LookupBytes4(table, index.q3)};
}
inline uint32x4_t DotBytes4(uint32x4_t sum, uint32x4_t a, uint32x4_t b) {
  int32x4_t total = vreinterpretq_s32_u32(sum);
  const int8x16_t x = vreinterpretq_s8_u32(a);
  const int8x16_t y = vreinterpretq_s8_u32(b);
#if defined(__clang__) && __clang_major__ < 16
  // Its header hides the intrinsic from regions of a file whose baseline lacks the instruction.
  asm("sdot %0.4s, %1.16b, %2.16b" : "+w"(total) : "w"(x), "w"(y));
#else
  total = vdotq_s32(total, x, y);
#endif
  return vreinterpretq_u32_s32(total);
}
inline VecU DotBytes(VecU sum, VecU a, VecU b) {
  return {DotBytes4(sum.q0, a.q0, b.q0), DotBytes4(sum.q1, a.q1, b.q1),
          DotBytes4(sum.q2, a.q2, b.q2), DotBytes4(sum.q3, a.q3, b.q3)};
}
inline VecU DotQuery(VecU sum, VecU levels, VecU query) { return DotBytes(sum, levels, query); }
inline VecU DotWeights(VecU sum, VecU weights, VecU levels) { return DotBytes(sum, weights, levels); }
inline VecU DotSigned(VecU sum, VecU weights, VecU digits) { return DotBytes(sum, weights, digits); }
inline float32x4_t ToFloat4(uint32x4_t a) { return vcvtq_f32_s32(vreinterpretq_s32_u32(a)); }
inline Vec ToFloat(VecU a) {
  return {ToFloat4(a.q0), ToFloat4(a.q1), ToFloat4(a.q2), ToFloat4(a.q3)};
}
// Saturates where the scalar twin wraps: numbers beyond -127 to 127 are outside of the contract.
inline int16x8_t RoundToInt16(float32x4_t lo, float32x4_t hi) {
  return vcombine_s16(vqmovn_s32(vcvtnq_s32_f32(lo)), vqmovn_s32(vcvtnq_s32_f32(hi)));
}
inline void StoreRounded(std::int8_t* p, Vec a) {
  vst1q_s8(p, vcombine_s8(vqmovn_s16(RoundToInt16(a.q0, a.q1)), vqmovn_s16(RoundToInt16(a.q2, a.q3))));
}
inline void StoreRounded64(std::int8_t* p, const Vec (&a)[4]) {
  for (int i = 0; i < 4; ++i) StoreRounded(p + i * 16, a[i]);
}

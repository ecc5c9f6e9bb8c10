// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Vec, sixteen floats in four NEON registers. Included inside a NEON region (isa_region.h); the meaning
// of every function is stated in vec_scalar-inl.h, bit for bit.

struct Vec {
  float32x4_t q0, q1, q2, q3;
};

// 24 sums, 4 registers of B and one number of A stay within the 32 registers.
inline constexpr int kTileRows = 6;
inline constexpr int kTileVecs = 1;

inline Vec Set1(float x) {
  const float32x4_t q = vdupq_n_f32(x);
  return {q, q, q, q};
}
inline Vec Load(const float* p) {
  return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
inline void Store(float* p, Vec a) {
  vst1q_f32(p, a.q0);
  vst1q_f32(p + 4, a.q1);
  vst1q_f32(p + 8, a.q2);
  vst1q_f32(p + 12, a.q3);
}
inline float32x4_t WidenHalf(uint16x4_t bits) { return vcvt_f32_f16(vreinterpret_f16_u16(bits)); }
inline Vec LoadHalf(const std::uint16_t* p) {
  return {WidenHalf(vld1_u16(p)), WidenHalf(vld1_u16(p + 4)), WidenHalf(vld1_u16(p + 8)),
          WidenHalf(vld1_u16(p + 12))};
}
inline void StoreHalf4(std::uint16_t* p, float32x4_t a) {
  vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a)));
}
inline void StoreHalf(std::uint16_t* p, Vec a) {
  StoreHalf4(p, a.q0);
  StoreHalf4(p + 4, a.q1);
  StoreHalf4(p + 8, a.q2);
  StoreHalf4(p + 12, a.q3);
}
inline float32x4_t WidenBFloat16(uint16x4_t bits) {
  return vreinterpretq_f32_u32(vshll_n_u16(bits, 16));
}
inline Vec LoadBFloat16(const std::uint16_t* p) {
  return {WidenBFloat16(vld1_u16(p)), WidenBFloat16(vld1_u16(p + 4)),
          WidenBFloat16(vld1_u16(p + 8)), WidenBFloat16(vld1_u16(p + 12))};
}
// Round to nearest even by integer arithmetic; callers keep NaN out (the encoder checks it).
inline void StoreBFloat16x4(std::uint16_t* p, float32x4_t a) {
  const uint32x4_t bits = vreinterpretq_u32_f32(a);
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  vst1_u16(p, vshrn_n_u32(vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd), 16));
}
inline void StoreBFloat16(std::uint16_t* p, Vec a) {
  StoreBFloat16x4(p, a.q0);
  StoreBFloat16x4(p + 4, a.q1);
  StoreBFloat16x4(p + 8, a.q2);
  StoreBFloat16x4(p + 12, a.q3);
}
inline float32x4_t Int16ToFloat(int16x4_t a) { return vcvtq_f32_s32(vmovl_s16(a)); }
inline Vec Int16ToVec(int16x8_t lo, int16x8_t hi) {
  return {Int16ToFloat(vget_low_s16(lo)), Int16ToFloat(vget_high_s16(lo)),
          Int16ToFloat(vget_low_s16(hi)), Int16ToFloat(vget_high_s16(hi))};
}
inline Vec BytesToVec(int8x16_t bytes) {
  return Int16ToVec(vmovl_s8(vget_low_s8(bytes)), vmovl_s8(vget_high_s8(bytes)));
}
inline Vec LoadInt8(const std::int8_t* p) { return BytesToVec(vld1q_s8(p)); }
inline void LoadNibbles(const std::uint8_t* p, Vec* low, Vec* high) {
  const uint8x16_t bytes = vld1q_u8(p);
  *low = BytesToVec(vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(15))));
  *high = BytesToVec(vreinterpretq_s8_u8(vshrq_n_u8(bytes, 4)));
}
inline Vec Add(Vec a, Vec b) {
  return {vaddq_f32(a.q0, b.q0), vaddq_f32(a.q1, b.q1), vaddq_f32(a.q2, b.q2),
          vaddq_f32(a.q3, b.q3)};
}
inline Vec Sub(Vec a, Vec b) {
  return {vsubq_f32(a.q0, b.q0), vsubq_f32(a.q1, b.q1), vsubq_f32(a.q2, b.q2),
          vsubq_f32(a.q3, b.q3)};
}
inline Vec Mul(Vec a, Vec b) {
  return {vmulq_f32(a.q0, b.q0), vmulq_f32(a.q1, b.q1), vmulq_f32(a.q2, b.q2),
          vmulq_f32(a.q3, b.q3)};
}
inline Vec Div(Vec a, Vec b) {
  return {vdivq_f32(a.q0, b.q0), vdivq_f32(a.q1, b.q1), vdivq_f32(a.q2, b.q2),
          vdivq_f32(a.q3, b.q3)};
}
inline Vec Fma(Vec a, Vec b, Vec c) {
  return {vfmaq_f32(c.q0, a.q0, b.q0), vfmaq_f32(c.q1, a.q1, b.q1), vfmaq_f32(c.q2, a.q2, b.q2),
          vfmaq_f32(c.q3, a.q3, b.q3)};
}
// Not the instruction of that name, which returns NaN where either number is NaN.
inline float32x4_t Max4(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
inline Vec Max(Vec a, Vec b) {
  return {Max4(a.q0, b.q0), Max4(a.q1, b.q1), Max4(a.q2, b.q2), Max4(a.q3, b.q3)};
}
inline Vec SelectLess(Vec a, Vec b, Vec x, Vec y) {
  return {vbslq_f32(vcltq_f32(a.q0, b.q0), x.q0, y.q0),
          vbslq_f32(vcltq_f32(a.q1, b.q1), x.q1, y.q1),
          vbslq_f32(vcltq_f32(a.q2, b.q2), x.q2, y.q2),
          vbslq_f32(vcltq_f32(a.q3, b.q3), x.q3, y.q3)};
}
inline float32x4_t AddExponent(float32x4_t p, float32x4_t shifted) {
  return vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(p),
                                         vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23)));
}
inline Vec ScaleByPow2(Vec p, Vec shifted) {
  return {AddExponent(p.q0, shifted.q0), AddExponent(p.q1, shifted.q1),
          AddExponent(p.q2, shifted.q2), AddExponent(p.q3, shifted.q3)};
}
// Written out: the instruction over a register adds neighbours first.
inline float ReduceAdd(Vec a) {
  const float32x4_t four = vaddq_f32(vaddq_f32(a.q0, a.q2), vaddq_f32(a.q1, a.q3));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
inline float ReduceMax(Vec a) {
  const float32x4_t four = Max4(Max4(a.q0, a.q2), Max4(a.q1, a.q3));
  const float32x4_t two = Max4(four, vextq_f32(four, four, 2));
  return vgetq_lane_f32(Max4(two, vdupq_laneq_f32(two, 1)), 0);
}

struct VecU {
  uint32x4_t q0, q1, q2, q3;
};

inline VecU LoadU32(const std::uint32_t* p) {
  return {vld1q_u32(p), vld1q_u32(p + 4), vld1q_u32(p + 8), vld1q_u32(p + 12)};
}
inline void StoreU32(std::uint32_t* p, VecU a) {
  vst1q_u32(p, a.q0);
  vst1q_u32(p + 4, a.q1);
  vst1q_u32(p + 8, a.q2);
  vst1q_u32(p + 12, a.q3);
}
inline VecU LoadU8(const std::uint8_t* p) {
  const uint8x16_t bytes = vld1q_u8(p);
  const uint16x8_t lo = vmovl_u8(vget_low_u8(bytes)), hi = vmovl_u8(vget_high_u8(bytes));
  return {vmovl_u16(vget_low_u16(lo)), vmovl_u16(vget_high_u16(lo)), vmovl_u16(vget_low_u16(hi)),
          vmovl_u16(vget_high_u16(hi))};
}
inline Vec U32ToFloat(VecU a) {
  return {vcvtq_f32_u32(a.q0), vcvtq_f32_u32(a.q1), vcvtq_f32_u32(a.q2), vcvtq_f32_u32(a.q3)};
}
inline VecU Set1U32(std::uint32_t x) {
  const uint32x4_t q = vdupq_n_u32(x);
  return {q, q, q, q};
}
template <int kBits>
inline VecU ShiftRight(VecU a) {
  if constexpr (kBits == 0) {  // the instruction shifts by 1 to 32
    return a;
  } else {
    return {vshrq_n_u32(a.q0, kBits), vshrq_n_u32(a.q1, kBits), vshrq_n_u32(a.q2, kBits),
            vshrq_n_u32(a.q3, kBits)};
  }
}
template <int kBits>
inline VecU ShiftLeft(VecU a) {
  return {vshlq_n_u32(a.q0, kBits), vshlq_n_u32(a.q1, kBits), vshlq_n_u32(a.q2, kBits),
          vshlq_n_u32(a.q3, kBits)};
}
inline VecU ShiftRightBy(VecU a, unsigned bits) {
  const int32x4_t left = vdupq_n_s32(-static_cast<int>(bits));
  return {vshlq_u32(a.q0, left), vshlq_u32(a.q1, left), vshlq_u32(a.q2, left),
          vshlq_u32(a.q3, left)};
}
inline VecU And(VecU a, VecU b) {
  return {vandq_u32(a.q0, b.q0), vandq_u32(a.q1, b.q1), vandq_u32(a.q2, b.q2),
          vandq_u32(a.q3, b.q3)};
}
inline VecU AddU32(VecU a, VecU b) {
  return {vaddq_u32(a.q0, b.q0), vaddq_u32(a.q1, b.q1), vaddq_u32(a.q2, b.q2),
          vaddq_u32(a.q3, b.q3)};
}
inline VecU Or(VecU a, VecU b) {
  return {vorrq_u32(a.q0, b.q0), vorrq_u32(a.q1, b.q1), vorrq_u32(a.q2, b.q2),
          vorrq_u32(a.q3, b.q3)};
}
inline VecU CountAbove(Vec a, Vec bound, VecU count) {
  return {vsubq_u32(count.q0, vcltq_f32(bound.q0, a.q0)),
          vsubq_u32(count.q1, vcltq_f32(bound.q1, a.q1)),
          vsubq_u32(count.q2, vcltq_f32(bound.q2, a.q2)),
          vsubq_u32(count.q3, vcltq_f32(bound.q3, a.q3))};
}
// A table look-up takes bytes: 4 index + 0, 1, 2, 3.
inline float32x4_t Lookup16x4(uint8x16x4_t table, uint32x4_t index) {
  const uint32x4_t low = vandq_u32(index, vdupq_n_u32(15));
  const uint32x4_t bytes = vmlaq_u32(vdupq_n_u32(0x03020100), low, vdupq_n_u32(0x04040404));
  return vreinterpretq_f32_u8(vqtbl4q_u8(table, vreinterpretq_u8_u32(bytes)));
}
inline Vec Lookup16(Vec table, VecU index) {
  const uint8x16x4_t bytes = {{vreinterpretq_u8_f32(table.q0), vreinterpretq_u8_f32(table.q1),
                               vreinterpretq_u8_f32(table.q2), vreinterpretq_u8_f32(table.q3)}};
  return {Lookup16x4(bytes, index.q0), Lookup16x4(bytes, index.q1), Lookup16x4(bytes, index.q2),
          Lookup16x4(bytes, index.q3)};
}
inline float32x4_t Gather4(const float* table, uint32x4_t index) {
  float32x4_t r = vld1q_dup_f32(table + vgetq_lane_u32(index, 0));
  r = vld1q_lane_f32(table + vgetq_lane_u32(index, 1), r, 1);
  r = vld1q_lane_f32(table + vgetq_lane_u32(index, 2), r, 2);
  return vld1q_lane_f32(table + vgetq_lane_u32(index, 3), r, 3);
}
inline Vec Gather(const float* table, VecU index) {
  return {Gather4(table, index.q0), Gather4(table, index.q1), Gather4(table, index.q2),
          Gather4(table, index.q3)};
}
template <int kStride>
inline float32x4_t Butterfly4(float32x4_t a) {
  const float32x4_t other = kStride == 1 ? vrev64q_f32(a) : vextq_f32(a, a, 2);
  const float32x4_t sum = vaddq_f32(a, other);
  const float32x4_t difference = vsubq_f32(a, other);
  if constexpr (kStride == 1) {
    return vtrn1q_f32(sum, difference);
  } else {
    return vcombine_f32(vget_low_f32(sum), vget_low_f32(difference));
  }
}
template <int kStride>
inline Vec Butterfly(Vec a) {
  static_assert(kStride == 1 || kStride == 2 || kStride == 4 || kStride == 8);
  if constexpr (kStride == 8) {
    return {vaddq_f32(a.q0, a.q2), vaddq_f32(a.q1, a.q3), vsubq_f32(a.q0, a.q2),
            vsubq_f32(a.q1, a.q3)};
  } else if constexpr (kStride == 4) {
    return {vaddq_f32(a.q0, a.q1), vsubq_f32(a.q0, a.q1), vaddq_f32(a.q2, a.q3),
            vsubq_f32(a.q2, a.q3)};
  } else {
    return {Butterfly4<kStride>(a.q0), Butterfly4<kStride>(a.q1), Butterfly4<kStride>(a.q2),
            Butterfly4<kStride>(a.q3)};
  }
}

// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Vec, sixteen floats, in plain C++: the twin that every vector kernel is compared with, and the
// kernel of processors without AVX2. Included inside a namespace; needs <cmath>, <cstdint> and
// base/half.h before.
//
// Every operation of Vec is exactly rounded (IEEE 754) or exact, on every ISA; the order inside
// reductions is fixed. So a kernel written on Vec gives the same bits whichever ISA runs it.

struct Vec {
  float lane[16];
};

// Register tile of the matrix kernels: rows x Vecs that stay in registers.
inline constexpr int kTileRows = 2;
inline constexpr int kTileVecs = 1;

inline Vec Set1(float x) {
  Vec r;
  for (int i = 0; i < 16; ++i) r.lane[i] = x;
  return r;
}
inline Vec Load(const float* p) {
  Vec r;
  for (int i = 0; i < 16; ++i) r.lane[i] = p[i];
  return r;
}
inline void Store(float* p, Vec a) {
  for (int i = 0; i < 16; ++i) p[i] = a.lane[i];
}
inline Vec LoadHalf(const std::uint16_t* p) {
  Vec r;
  for (int i = 0; i < 16; ++i) r.lane[i] = HalfToFloat(Half{p[i]});
  return r;
}
inline void StoreHalf(std::uint16_t* p, Vec a) {
  for (int i = 0; i < 16; ++i) p[i] = FloatToHalf(a.lane[i]).bits;
}
inline Vec LoadBFloat16(const std::uint16_t* p) {
  Vec r;
  for (int i = 0; i < 16; ++i) r.lane[i] = BFloat16ToFloat(BFloat16{p[i]});
  return r;
}
inline void StoreBFloat16(std::uint16_t* p, Vec a) {
  for (int i = 0; i < 16; ++i) p[i] = FloatToBFloat16(a.lane[i]).bits;
}
inline Vec LoadInt8(const std::int8_t* p) {
  Vec r;
  for (int i = 0; i < 16; ++i) r.lane[i] = static_cast<float>(p[i]);
  return r;
}
// Sixteen bytes as two nibbles each: low nibbles to *low, high nibbles to *high, values 0 to 15.
inline void LoadNibbles(const std::uint8_t* p, Vec* low, Vec* high) {
  for (int i = 0; i < 16; ++i) {
    low->lane[i] = static_cast<float>(p[i] & 15);
    high->lane[i] = static_cast<float>(p[i] >> 4);
  }
}
inline Vec Add(Vec a, Vec b) {
  for (int i = 0; i < 16; ++i) a.lane[i] += b.lane[i];
  return a;
}
inline Vec Sub(Vec a, Vec b) {
  for (int i = 0; i < 16; ++i) a.lane[i] -= b.lane[i];
  return a;
}
inline Vec Mul(Vec a, Vec b) {
  for (int i = 0; i < 16; ++i) a.lane[i] *= b.lane[i];
  return a;
}
inline Vec Div(Vec a, Vec b) {
  for (int i = 0; i < 16; ++i) a.lane[i] /= b.lane[i];
  return a;
}
// a * b + c, rounded once.
inline Vec Fma(Vec a, Vec b, Vec c) {
  for (int i = 0; i < 16; ++i) c.lane[i] = std::fma(a.lane[i], b.lane[i], c.lane[i]);
  return c;
}
// b where a is NaN, like the x86 instruction.
inline Vec Max(Vec a, Vec b) {
  for (int i = 0; i < 16; ++i) a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
  return a;
}
// Lane by lane: a < b ? x : y (y where a or b is NaN).
inline Vec SelectLess(Vec a, Vec b, Vec x, Vec y) {
  for (int i = 0; i < 16; ++i) y.lane[i] = a.lane[i] < b.lane[i] ? x.lane[i] : y.lane[i];
  return y;
}
// p * 2^n, n the integer in the low bits of `shifted` (vec_math-inl.h); exact while normal.
inline Vec ScaleByPow2(Vec p, Vec shifted) {
  for (int i = 0; i < 16; ++i) {
    p.lane[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(p.lane[i]) +
                                     (std::bit_cast<std::uint32_t>(shifted.lane[i]) << 23));
  }
  return p;
}
// Lanes in a fixed tree: halves of 8, 4, 2, 1 added pairwise.
inline float ReduceAdd(Vec a) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.lane[i] += a.lane[i + half];
  }
  return a.lane[0];
}
inline float ReduceMax(Vec a) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) {
      a.lane[i] = a.lane[i] > a.lane[i + half] ? a.lane[i] : a.lane[i + half];
    }
  }
  return a.lane[0];
}

// VecU, sixteen unsigned 32-bit numbers: packed codes on their way to a table.
struct VecU {
  std::uint32_t lane[16];
};

inline VecU LoadU32(const std::uint32_t* p) {
  VecU r;
  for (int i = 0; i < 16; ++i) r.lane[i] = p[i];
  return r;
}
inline void StoreU32(std::uint32_t* p, VecU a) {
  for (int i = 0; i < 16; ++i) p[i] = a.lane[i];
}
// Sixteen bytes.
inline VecU LoadU8(const std::uint8_t* p) {
  VecU r;
  for (int i = 0; i < 16; ++i) r.lane[i] = p[i];
  return r;
}
// Numbers below 2^24: exact.
inline Vec U32ToFloat(VecU a) {
  Vec r;
  for (int i = 0; i < 16; ++i) r.lane[i] = static_cast<float>(a.lane[i]);
  return r;
}
inline VecU Set1U32(std::uint32_t x) {
  VecU r;
  for (int i = 0; i < 16; ++i) r.lane[i] = x;
  return r;
}
template <int kBits>
inline VecU ShiftRight(VecU a) {
  for (int i = 0; i < 16; ++i) a.lane[i] >>= kBits;
  return a;
}
template <int kBits>
inline VecU ShiftLeft(VecU a) {
  for (int i = 0; i < 16; ++i) a.lane[i] <<= kBits;
  return a;
}
// By a number of bits (0 to 31) known at run time.
inline VecU ShiftRightBy(VecU a, unsigned bits) {
  for (int i = 0; i < 16; ++i) a.lane[i] >>= bits;
  return a;
}
inline VecU And(VecU a, VecU b) {
  for (int i = 0; i < 16; ++i) a.lane[i] &= b.lane[i];
  return a;
}
inline VecU AddU32(VecU a, VecU b) {
  for (int i = 0; i < 16; ++i) a.lane[i] += b.lane[i];
  return a;
}
inline VecU Or(VecU a, VecU b) {
  for (int i = 0; i < 16; ++i) a.lane[i] |= b.lane[i];
  return a;
}
// Lane by lane: count + (bound < a ? 1 : 0).
inline VecU CountAbove(Vec a, Vec bound, VecU count) {
  for (int i = 0; i < 16; ++i) count.lane[i] += bound.lane[i] < a.lane[i] ? 1 : 0;
  return count;
}
// table[low four bits of the index]: the sixteen floats of a register.
inline Vec Lookup16(Vec table, VecU index) {
  Vec r;
  for (int i = 0; i < 16; ++i) r.lane[i] = table.lane[index.lane[i] & 15];
  return r;
}
// table[index]: any number of floats in memory; every index must be inside.
inline Vec Gather(const float* table, VecU index) {
  Vec r;
  for (int i = 0; i < 16; ++i) r.lane[i] = table[index.lane[i]];
  return r;
}
// One stage of a Hadamard transform inside a Vec: lanes i and i + kStride (bit kStride of i clear) become
// their sum and their difference.
template <int kStride>
inline Vec Butterfly(Vec a) {
  for (int i = 0; i < 16; ++i) {
    if ((i & kStride) != 0) continue;
    const float x = a.lane[i];
    const float y = a.lane[i + kStride];
    a.lane[i] = x + y;
    a.lane[i + kStride] = x - y;
  }
  return a;
}

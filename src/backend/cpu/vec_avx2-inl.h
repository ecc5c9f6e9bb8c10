// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Vec, sixteen floats in two AVX registers. Included inside an AVX2 region (isa_region.h); the meaning
// of every function is stated in vec_scalar-inl.h, bit for bit.

struct Vec {
  __m256 lo, hi;
};

inline constexpr int kTileRows = 6;
inline constexpr int kTileVecs = 1;

inline Vec Set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vec Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void Store(float* p, Vec a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline __m128i LoadBits128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
inline Vec LoadHalf(const std::uint16_t* p) {
  return {_mm256_cvtph_ps(LoadBits128(p)), _mm256_cvtph_ps(LoadBits128(p + 8))};
}
inline void StoreHalf(std::uint16_t* p, Vec a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8),
                   _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}
inline __m256 WidenBFloat16(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline Vec LoadBFloat16(const std::uint16_t* p) {
  return {WidenBFloat16(LoadBits128(p)), WidenBFloat16(LoadBits128(p + 8))};
}
// Round to nearest even by integer arithmetic; callers keep NaN out (the encoder checks it).
inline __m256i RoundBFloat16(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_srli_epi32(
      _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
}
inline void StoreBFloat16(std::uint16_t* p, Vec a) {
  const __m256i packed = _mm256_packus_epi32(RoundBFloat16(a.lo), RoundBFloat16(a.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}
inline Vec LoadInt8(const std::int8_t* p) {
  const __m128i bytes = LoadBits128(p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
inline Vec BytesToFloat(__m128i bytes) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)))};
}
inline void LoadNibbles(const std::uint8_t* p, Vec* low, Vec* high) {
  const __m128i bytes = LoadBits128(p);
  const __m128i mask = _mm_set1_epi8(15);
  *low = BytesToFloat(_mm_and_si128(bytes, mask));
  *high = BytesToFloat(_mm_and_si128(_mm_srli_epi16(bytes, 4), mask));
}
inline Vec Add(Vec a, Vec b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline Vec Sub(Vec a, Vec b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline Vec Mul(Vec a, Vec b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline Vec Div(Vec a, Vec b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline Vec Fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline Vec Max(Vec a, Vec b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline Vec SelectLess(Vec a, Vec b, Vec x, Vec y) {
  return {_mm256_blendv_ps(y.lo, x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.hi, x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
inline __m256 AddExponent(__m256 p, __m256 shifted) {
  return _mm256_castsi256_ps(_mm256_add_epi32(
      _mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(shifted), 23)));
}
inline Vec ScaleByPow2(Vec p, Vec shifted) {
  return {AddExponent(p.lo, shifted.lo), AddExponent(p.hi, shifted.hi)};
}
inline float ReduceAdd(Vec a) {
  const __m256 eight = _mm256_add_ps(a.lo, a.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float ReduceMax(Vec a) {
  const __m256 eight = _mm256_max_ps(a.lo, a.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

struct VecU {
  __m256i lo, hi;
};

inline __m256i LoadBits256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
inline VecU LoadU32(const std::uint32_t* p) { return {LoadBits256(p), LoadBits256(p + 8)}; }
inline void StoreU32(std::uint32_t* p, VecU a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), a.hi);
}
inline VecU LoadU8(const std::uint8_t* p) {
  const __m128i bytes = LoadBits128(p);
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
inline Vec U32ToFloat(VecU a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline VecU Set1U32(std::uint32_t x) {
  const __m256i v = _mm256_set1_epi32(static_cast<int>(x));
  return {v, v};
}
template <int kBits>
inline VecU ShiftRight(VecU a) {
  return {_mm256_srli_epi32(a.lo, kBits), _mm256_srli_epi32(a.hi, kBits)};
}
template <int kBits>
inline VecU ShiftLeft(VecU a) {
  return {_mm256_slli_epi32(a.lo, kBits), _mm256_slli_epi32(a.hi, kBits)};
}
inline VecU ShiftRightBy(VecU a, unsigned bits) {
  const __m128i count = _mm_cvtsi32_si128(static_cast<int>(bits));
  return {_mm256_srl_epi32(a.lo, count), _mm256_srl_epi32(a.hi, count)};
}
inline VecU And(VecU a, VecU b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
inline VecU AddU32(VecU a, VecU b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
inline VecU Or(VecU a, VecU b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
inline __m256i CountAbove8(__m256 a, __m256 bound, __m256i count) {
  return _mm256_sub_epi32(count, _mm256_castps_si256(_mm256_cmp_ps(bound, a, _CMP_LT_OQ)));
}
inline VecU CountAbove(Vec a, Vec bound, VecU count) {
  return {CountAbove8(a.lo, bound.lo, count.lo), CountAbove8(a.hi, bound.hi, count.hi)};
}
// A permute reads three bits of the index; the fourth chooses between the halves of the table.
inline __m256 Lookup16x8(Vec table, __m256i index) {
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.lo, index),
                          _mm256_permutevar8x32_ps(table.hi, index),
                          _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
}
inline Vec Lookup16(Vec table, VecU index) {
  return {Lookup16x8(table, index.lo), Lookup16x8(table, index.hi)};
}
inline Vec Gather(const float* table, VecU index) {
  return {_mm256_i32gather_ps(table, index.lo, 4), _mm256_i32gather_ps(table, index.hi, 4)};
}
template <int kStride>
inline __m256 Butterfly8(__m256 a) {
  __m256 other;
  if constexpr (kStride == 1) {
    other = _mm256_permute_ps(a, 0xb1);
  } else if constexpr (kStride == 2) {
    other = _mm256_permute_ps(a, 0x4e);
  } else {
    other = _mm256_permute2f128_ps(a, a, 1);
  }
  constexpr int kUpper = kStride == 1 ? 0xaa : kStride == 2 ? 0xcc : 0xf0;
  return _mm256_blend_ps(_mm256_add_ps(a, other), _mm256_sub_ps(other, a), kUpper);
}
template <int kStride>
inline Vec Butterfly(Vec a) {
  static_assert(kStride == 1 || kStride == 2 || kStride == 4 || kStride == 8);
  if constexpr (kStride == 8) {
    return {_mm256_add_ps(a.lo, a.hi), _mm256_sub_ps(a.lo, a.hi)};
  } else {
    return {Butterfly8<kStride>(a.lo), Butterfly8<kStride>(a.hi)};
  }
}

// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Vec, sixteen floats in one AVX-512 register. Included inside an AVX-512 region (isa_region.h); the
// meaning of every function is stated in vec_scalar-inl.h, bit for bit.

struct Vec {
  __m512 v;
};

inline constexpr int kTileRows = 6;
inline constexpr int kTileVecs = 4;

inline Vec Set1(float x) { return {_mm512_set1_ps(x)}; }
inline Vec Load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void Store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
inline __m256i LoadBits256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
inline __m128i LoadBits128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
inline Vec LoadHalf(const std::uint16_t* p) { return {_mm512_cvtph_ps(LoadBits256(p))}; }
inline void StoreHalf(std::uint16_t* p, Vec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
inline Vec LoadBFloat16(const std::uint16_t* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(LoadBits256(p)), 16))};
}
// Round to nearest even by integer arithmetic; callers keep NaN out (the encoder checks it).
inline void StoreBFloat16(std::uint16_t* p, Vec a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_srli_epi32(
      _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(rounded));
}
inline Vec LoadInt8(const std::int8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(LoadBits128(p)))};
}
// The sixteen possible values come from a register: a permute reads only the low four bits of each
// index, so the low nibble needs no mask and no conversion.
inline void LoadNibbles(const std::uint8_t* p, Vec* low, Vec* high) {
  const __m512 values = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i bytes = _mm512_cvtepu8_epi32(LoadBits128(p));
  low->v = _mm512_permutexvar_ps(bytes, values);
  high->v = _mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), values);
}
inline Vec Add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec Sub(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec Mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec Div(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Vec Fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec Max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Vec SelectLess(Vec a, Vec b, Vec x, Vec y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}
inline Vec ScaleByPow2(Vec p, Vec shifted) {
  return {_mm512_castsi512_ps(_mm512_add_epi32(
      _mm512_castps_si512(p.v), _mm512_slli_epi32(_mm512_castps_si512(shifted.v), 23)))};
}
// Written out: the library reduction has another order (and a false warning under g++ 12).
inline float ReduceAdd(Vec a) {
  const __m256 eight =
      _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float ReduceMax(Vec a) {
  const __m256 eight =
      _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

struct VecU {
  __m512i v;
};

inline VecU LoadU32(const std::uint32_t* p) { return {_mm512_loadu_si512(p)}; }
inline void StoreU32(std::uint32_t* p, VecU a) { _mm512_storeu_si512(p, a.v); }
inline VecU LoadU8(const std::uint8_t* p) { return {_mm512_cvtepu8_epi32(LoadBits128(p))}; }
inline Vec U32ToFloat(VecU a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline VecU Set1U32(std::uint32_t x) { return {_mm512_set1_epi32(static_cast<int>(x))}; }
template <int kBits>
inline VecU ShiftRight(VecU a) {
  return {_mm512_srli_epi32(a.v, kBits)};
}
template <int kBits>
inline VecU ShiftLeft(VecU a) {
  return {_mm512_slli_epi32(a.v, kBits)};
}
inline VecU ShiftRightBy(VecU a, unsigned bits) {
  return {_mm512_srl_epi32(a.v, _mm_cvtsi32_si128(static_cast<int>(bits)))};
}
inline VecU And(VecU a, VecU b) { return {_mm512_and_si512(a.v, b.v)}; }
inline VecU AddU32(VecU a, VecU b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline VecU Or(VecU a, VecU b) { return {_mm512_or_si512(a.v, b.v)}; }
inline VecU CountAbove(Vec a, Vec bound, VecU count) {
  return {_mm512_mask_add_epi32(count.v, _mm512_cmp_ps_mask(bound.v, a.v, _CMP_LT_OQ), count.v,
                                _mm512_set1_epi32(1))};
}
inline Vec Lookup16(Vec table, VecU index) { return {_mm512_permutexvar_ps(index.v, table.v)}; }
inline Vec Gather(const float* table, VecU index) {
  return {_mm512_i32gather_ps(index.v, table, 4)};
}
template <int kStride>
inline Vec Butterfly(Vec a) {
  static_assert(kStride == 1 || kStride == 2 || kStride == 4 || kStride == 8);
  __m512 other;
  __mmask16 upper;
  if constexpr (kStride == 1) {
    other = _mm512_permute_ps(a.v, 0xb1);
    upper = 0xaaaa;
  } else if constexpr (kStride == 2) {
    other = _mm512_permute_ps(a.v, 0x4e);
    upper = 0xcccc;
  } else if constexpr (kStride == 4) {
    other = _mm512_shuffle_f32x4(a.v, a.v, 0xb1);
    upper = 0xf0f0;
  } else {
    other = _mm512_shuffle_f32x4(a.v, a.v, 0x4e);
    upper = 0xff00;
  }
  return {_mm512_mask_sub_ps(_mm512_add_ps(a.v, other), upper, other, a.v)};
}

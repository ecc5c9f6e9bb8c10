// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Integer dot products of bytes for AVX-512 with VNNI; included after vec_avx512-inl.h. Meanings:
// dot_scalar-inl.h.

struct ByteTable {
  __m512i v;  // the sixteen bytes in all four quarters
};

// vpdpbusd multiplies unsigned by signed bytes: levels of keys become unsigned, queries stay
// signed.
inline constexpr std::int32_t kKeyBias = 128;

inline ByteTable LoadByteTable(const std::int8_t* p) {
  return {_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline ByteTable LoadKeyTable(const std::int8_t* p) {
  return {_mm512_xor_si512(LoadByteTable(p).v, _mm512_set1_epi8(-128))};
}
inline VecU LookupBytes(const ByteTable& table, VecU index) {
  return {_mm512_shuffle_epi8(table.v, index.v)};
}
inline VecU DotQuery(VecU sum, VecU levels, VecU query) {
  return {_mm512_dpbusd_epi32(sum.v, levels.v, query.v)};
}
inline VecU DotWeights(VecU sum, VecU weights, VecU levels) {
  return {_mm512_dpbusd_epi32(sum.v, weights.v, levels.v)};
}
inline VecU DotSigned(VecU sum, VecU weights, VecU digits) {
  const __m512i levels = _mm512_xor_si512(weights.v, _mm512_set1_epi8(-128));
  return {_mm512_dpbusd_epi32(sum.v, levels, digits.v)};
}
inline Vec ToFloat(VecU a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline void StoreRounded(std::int8_t* p, Vec a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a.v)));
}
// Packs work inside quarters; one permute of 32-bit words puts them in order.
inline void StoreRounded64(std::int8_t* p, const Vec (&a)[4]) {
  const __m512i low = _mm512_packs_epi32(_mm512_cvtps_epi32(a[0].v), _mm512_cvtps_epi32(a[1].v));
  const __m512i high = _mm512_packs_epi32(_mm512_cvtps_epi32(a[2].v), _mm512_cvtps_epi32(a[3].v));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm512_storeu_si512(p, _mm512_permutexvar_epi32(order, _mm512_packs_epi16(low, high)));
}

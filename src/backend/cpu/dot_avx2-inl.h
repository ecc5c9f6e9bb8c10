// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Integer dot products of bytes for AVX2; included after vec_avx2-inl.h. Meanings:
// dot_scalar-inl.h.

struct ByteTable {
  __m256i v;  // the sixteen bytes in both halves
};

inline constexpr std::int32_t kKeyBias = 0;

inline ByteTable LoadByteTable(const std::int8_t* p) {
  return {_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline ByteTable LoadKeyTable(const std::int8_t* p) { return LoadByteTable(p); }
inline VecU LookupBytes(const ByteTable& table, VecU index) {
  return {_mm256_shuffle_epi8(table.v, index.lo), _mm256_shuffle_epi8(table.v, index.hi)};
}
// Pairs of products are added in 16 bits: 2 * 127 * 127 fits.
inline __m256i DotWeights8(__m256i sum, __m256i weights, __m256i levels) {
  const __m256i pairs = _mm256_maddubs_epi16(weights, levels);
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
inline VecU DotWeights(VecU sum, VecU weights, VecU levels) {
  return {DotWeights8(sum.lo, weights.lo, levels.lo), DotWeights8(sum.hi, weights.hi, levels.hi)};
}
// The instruction multiplies unsigned by signed bytes: the query's signs move to the levels.
inline VecU DotQuery(VecU sum, VecU levels, VecU query) {
  return {DotWeights8(sum.lo, _mm256_abs_epi8(query.lo), _mm256_sign_epi8(levels.lo, query.lo)),
          DotWeights8(sum.hi, _mm256_abs_epi8(query.hi), _mm256_sign_epi8(levels.hi, query.hi))};
}
// Here the weights' signs move to the digits, which are never -128: 2 * 128 * 127 fits.
inline VecU DotSigned(VecU sum, VecU weights, VecU digits) {
  return {DotWeights8(sum.lo, _mm256_abs_epi8(weights.lo), _mm256_sign_epi8(digits.lo, weights.lo)),
          DotWeights8(sum.hi, _mm256_abs_epi8(weights.hi), _mm256_sign_epi8(digits.hi, weights.hi))};
}
inline Vec ToFloat(VecU a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline void StoreRounded(std::int8_t* p, Vec a) {
  const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi));
  const __m256i order = _mm256_permute4x64_epi64(words, 0xd8);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(p),
      _mm_packs_epi16(_mm256_castsi256_si128(order), _mm256_extracti128_si256(order, 1)));
}
inline void StoreRounded64(std::int8_t* p, const Vec (&a)[4]) {
  for (int i = 0; i < 4; ++i) StoreRounded(p + i * 16, a[i]);
}

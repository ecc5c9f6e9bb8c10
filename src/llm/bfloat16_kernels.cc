// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/bfloat16_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "backend/cpu/isa_region.h"
#include "base/half.h"
#include "llm/weight_layout.h"

namespace kvant {
namespace bfloat16_scalar {
namespace {

void Round(const float* x, std::size_t n, std::uint16_t* out) noexcept {
  for (std::size_t i = 0; i < n; ++i) out[i] = FloatToBFloat16(x[i]).bits;
}

void PackPairs(const float* columns, std::size_t n_cols, std::uint16_t* out,
               std::size_t pair_stride) noexcept {
  for (std::size_t col = 0; col < n_cols; ++col) {
    for (std::size_t row = 0; row < kPanelRows; ++row) {
      out[col / 2 * pair_stride + row * 2 + col % 2] =
          FloatToBFloat16(columns[col * kPanelRows + row]).bits;
    }
  }
}

}  // namespace
}  // namespace bfloat16_scalar
}  // namespace kvant

#if defined(__x86_64__)
KVANT_TARGET_BEGIN_AVX512
namespace kvant::bfloat16_avx512 {
namespace {

// The rounded number in the high half of each lane; the low half is what rounding left.
inline __m512i RoundedHigh(__m512 x) noexcept {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x400000));
}

void Round(const float* x, std::size_t n, std::uint16_t* out) noexcept {
  for (std::size_t i = 0; i < n; i += 16) {
    const std::size_t left = n - i;
    const __mmask16 mask =
        left >= 16 ? static_cast<__mmask16>(0xffff) : static_cast<__mmask16>((1u << left) - 1);
    const __m512i high = RoundedHigh(_mm512_maskz_loadu_ps(mask, x + i));
    _mm512_mask_cvtepi32_storeu_epi16(out + i, mask, _mm512_srli_epi32(high, 16));
  }
}

void PackPairs(const float* columns, std::size_t n_cols, std::uint16_t* out,
               std::size_t pair_stride) noexcept {
  const __m512i high_half = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  for (std::size_t col = 0; col < n_cols; col += 2) {
    const float* from = columns + col * kPanelRows;
    std::uint16_t* to = out + col / 2 * pair_stride;
    for (std::size_t row = 0; row < kPanelRows; row += 16) {
      const __m512i first = RoundedHigh(_mm512_loadu_ps(from + row));
      const __m512i second = RoundedHigh(_mm512_loadu_ps(from + kPanelRows + row));
      _mm512_storeu_si512(to + 2 * row, _mm512_or_si512(_mm512_srli_epi32(first, 16),
                                                        _mm512_and_si512(second, high_half)));
    }
  }
}

}  // namespace
}  // namespace kvant::bfloat16_avx512
KVANT_TARGET_END
#endif

namespace kvant {

const BFloat16Kernels& BFloat16KernelsOf(Isa isa) {
#if defined(__x86_64__)
  static const BFloat16Kernels kAvx512 = {&bfloat16_avx512::Round, &bfloat16_avx512::PackPairs};
  if (isa == Isa::kAvx512) return kAvx512;
#endif
  static_cast<void>(isa);
  static const BFloat16Kernels kScalar = {&bfloat16_scalar::Round, &bfloat16_scalar::PackPairs};
  return kScalar;
}

}  // namespace kvant

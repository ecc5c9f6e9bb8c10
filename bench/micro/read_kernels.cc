// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Sums of words in independent chains: one chain of additions would wait for itself, not for memory.
// Which one is fastest depends on the processor's own prefetching, so all are offered.
#include "bench/micro/read_kernels.h"

#include <array>

#if defined(__x86_64__)
#include <immintrin.h>

#include "backend/cpu/isa_region.h"

KVANT_TARGET_BEGIN_AVX2
namespace kvant::micro::avx2 {
namespace {

std::uint64_t Sum(const std::uint64_t* words, std::size_t n) {
  __m256i s0 = _mm256_setzero_si256(), s1 = s0, s2 = s0, s3 = s0;
  for (std::size_t i = 0; i < n; i += 16) {
    const __m256i* from = reinterpret_cast<const __m256i*>(words + i);
    s0 = _mm256_add_epi64(s0, _mm256_load_si256(from));
    s1 = _mm256_add_epi64(s1, _mm256_load_si256(from + 1));
    s2 = _mm256_add_epi64(s2, _mm256_load_si256(from + 2));
    s3 = _mm256_add_epi64(s3, _mm256_load_si256(from + 3));
  }
  alignas(32) std::uint64_t lanes[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes),
                     _mm256_add_epi64(_mm256_add_epi64(s0, s1), _mm256_add_epi64(s2, s3)));
  return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

}  // namespace
}  // namespace kvant::micro::avx2
KVANT_TARGET_END

KVANT_TARGET_BEGIN_AVX512
namespace kvant::micro::avx512 {
namespace {

// kAhead: bytes between the line that is read and the one that is asked for; 0: no prefetch.
template <int kAhead>
std::uint64_t Sum(const std::uint64_t* words, std::size_t n) {
  __m512i s0 = _mm512_setzero_si512(), s1 = s0, s2 = s0, s3 = s0;
  for (std::size_t i = 0; i < n; i += kReadStep) {
    const std::uint64_t* from = words + i;
    if constexpr (kAhead != 0) {  // beyond the end of the buffer a prefetch does nothing
      const char* ahead = reinterpret_cast<const char*>(from) + kAhead;
      _mm_prefetch(ahead, _MM_HINT_T0);
      _mm_prefetch(ahead + 64, _MM_HINT_T0);
      _mm_prefetch(ahead + 128, _MM_HINT_T0);
      _mm_prefetch(ahead + 192, _MM_HINT_T0);
    }
    s0 = _mm512_add_epi64(s0, _mm512_load_si512(from));
    s1 = _mm512_add_epi64(s1, _mm512_load_si512(from + 8));
    s2 = _mm512_add_epi64(s2, _mm512_load_si512(from + 16));
    s3 = _mm512_add_epi64(s3, _mm512_load_si512(from + 24));
  }
  alignas(64) std::uint64_t lanes[8];
  _mm512_store_si512(lanes, _mm512_add_epi64(_mm512_add_epi64(s0, s1), _mm512_add_epi64(s2, s3)));
  std::uint64_t sum = 0;
  for (int lane = 0; lane < 8; ++lane) sum += lanes[lane];
  return sum;
}

}  // namespace
}  // namespace kvant::micro::avx512
KVANT_TARGET_END
#endif  // __x86_64__

namespace kvant::micro {
namespace {

std::uint64_t PlainSum(const std::uint64_t* words, std::size_t n) {
  std::uint64_t sums[8] = {};
  for (std::size_t i = 0; i < n; i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) sums[lane] += words[i + lane];
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t lane : sums) sum += lane;
  return sum;
}

constexpr std::array kKernels = {
    ReadKernel{"plain", Isa::kScalar, &PlainSum},
#if defined(__x86_64__)
    ReadKernel{"avx2", Isa::kAvx2, &avx2::Sum},
    ReadKernel{"avx512", Isa::kAvx512, &avx512::Sum<0>},
    ReadKernel{"avx512_ahead1k", Isa::kAvx512, &avx512::Sum<1024>},
    ReadKernel{"avx512_ahead2k", Isa::kAvx512, &avx512::Sum<2048>},
#endif
};

}  // namespace

std::span<const ReadKernel> ReadKernels() { return kKernels; }
const ReadKernel& PlainReadKernel() { return kKernels.front(); }

}  // namespace kvant::micro

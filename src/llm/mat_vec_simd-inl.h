// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// One token times panels; contracts in matmul_kernels.h. Included inside each ISA's namespace after
// weight_format_simd-inl.h.
//
// Both products read a panel once, front to back, and ask for what lies kAhead bytes further on; so the stream
// runs on across the panels of a work item. It is asked into the second level: the first has too few places for
// lines that are under way.

inline constexpr std::size_t kAhead = 4096;

template <std::size_t kBytes>
inline void ReadAhead(const std::byte* from) {
  for (std::size_t i = 0; i < kBytes; i += 64) __builtin_prefetch(from + kAhead + i, 0, 2);
}

// Columns from quad (or single column) kIndex to the end of a part: one chain for each row.
template <typename F, int kIndex, int kEnd>
inline void AddColumns(const std::byte* sub, const typename F::Scales (&scales)[kHalves],
                       const float* x, Vec (&sum)[kHalves]) {
  if constexpr (kIndex < kEnd) {
    Vec w[kHalves][F::kColumns];
    for (int h = 0; h < kHalves; ++h) F::template LoadColumns<kIndex>(sub, h, scales[h], w[h]);
    for (std::size_t i = 0; i < F::kColumns; ++i) {
      const Vec value = Set1(x[kIndex * F::kColumns + i]);
      for (int h = 0; h < kHalves; ++h) sum[h] = Fma(value, w[h][i], sum[h]);
    }
    AddColumns<F, kIndex + 1, kEnd>(sub, scales, x, sum);
  }
}

template <typename F, int kPart = 0>
inline void AddParts(const std::byte* block, const std::byte* sub, const float* x,
                     Vec (&sum)[kHalves]) {
  if constexpr (kPart < static_cast<int>(F::kParts)) {
    constexpr int kQuads = F::kBlockColumns / F::kSubs / F::kParts / F::kColumns;
    typename F::Scales scales[kHalves];
    for (int h = 0; h < kHalves; ++h) scales[h] = F::LoadScales(block, sub, kPart, h);
    AddColumns<F, kPart * kQuads, (kPart + 1) * kQuads>(sub, scales, x, sum);
    AddParts<F, kPart + 1>(block, sub, x, sum);
  }
}

template <typename F>
inline void MatVecPanels(const std::byte* block, std::size_t n_panels, std::size_t n_cols,
                         const float* x, float* y) noexcept {
  for (std::size_t panel = 0; panel < n_panels; ++panel, y += kPanelRows) {
    Vec sum[kHalves] = {Set1(0.0f), Set1(0.0f)};
    for (std::size_t col = 0; col < n_cols; col += F::kBlockColumns) {
      const std::byte* sub = block + F::kHeaderBytes;
      for (std::size_t s = 0; s < F::kSubs; ++s, sub += F::kSubBytes) {
        ReadAhead<F::kSubBytes>(sub);
        AddParts<F>(block, sub, x + col + s * kSubColumns, sum);
      }
      block = sub;
    }
    for (int h = 0; h < kHalves; ++h) Store(y + 16 * h, sum[h]);
  }
}

// Sums of products of codes with the two digits of a group.
struct DigitSums {
  VecU high[kHalves], low[kHalves];
};

template <typename F, int kIndex, int kEnd>
inline void DotQuads(const std::byte* sub, const ActivationGroup& x, DigitSums& sums) {
  if constexpr (kIndex < kEnd) {
    std::uint32_t high, low;
    std::memcpy(&high, x.high + kIndex * kQuad, sizeof(high));
    std::memcpy(&low, x.low + kIndex * kQuad, sizeof(low));
    for (int h = 0; h < kHalves; ++h) {
      const typename F::Levels levels = F::ToLevels(F::template LoadCodes<kIndex>(sub, h));
      sums.high[h] = F::Dot(sums.high[h], levels, Set1U32(high));
      sums.low[h] = F::Dot(sums.low[h], levels, Set1U32(low));
    }
    DotQuads<F, kIndex + 1, kEnd>(sub, x, sums);
  }
}

template <typename F, int kPart = 0>
inline void DotParts(const std::byte* block, const std::byte* sub, const ActivationGroup& x,
                     Vec (&sum)[kHalves]) {
  if constexpr (kPart < static_cast<int>(F::kParts)) {
    constexpr int kQuads = kSubColumns / kQuad / F::kParts;
    const std::int32_t total = F::kParts == 1 ? x.sum[0] + x.sum[1] : x.sum[kPart];
    const VecU zero = Set1U32(0);
    const VecU start = Set1U32(static_cast<std::uint32_t>(-F::kBias * total));
    DigitSums sums = {{zero, zero}, {start, start}};
    DotQuads<F, kPart * kQuads, (kPart + 1) * kQuads>(sub, x, sums);
    for (int h = 0; h < kHalves; ++h) {
      const typename F::Scales scales = F::LoadScales(block, sub, kPart, h);
      const Vec dot = ToFloat(AddU32(ShiftLeft<kDigitBits>(sums.high[h]), sums.low[h]));
      sum[h] = Fma(dot, Mul(scales.scale, Set1(x.scale)), sum[h]);
      if constexpr (F::kHasMinimum) {
        sum[h] = Fma(scales.min, Set1(x.scale * static_cast<float>(total)), sum[h]);
      }
    }
    DotParts<F, kPart + 1>(block, sub, x, sum);
  }
}

template <typename F>
inline void MatVecDigitPanels(const std::byte* block, std::size_t n_panels, std::size_t n_cols,
                              const ActivationGroup* x, float* y) noexcept {
  for (std::size_t panel = 0; panel < n_panels; ++panel, y += kPanelRows) {
    Vec sum[kHalves] = {Set1(0.0f), Set1(0.0f)};
    const ActivationGroup* group = x;
    for (std::size_t col = 0; col < n_cols; col += F::kBlockColumns) {
      const std::byte* sub = block + F::kHeaderBytes;
      for (std::size_t s = 0; s < F::kSubs; ++s, sub += F::kSubBytes, ++group) {
        ReadAhead<F::kSubBytes>(sub);
        DotParts<F>(block, sub, *group, sum);
      }
      block = sub;
    }
    for (int h = 0; h < kHalves; ++h) Store(y + 16 * h, sum[h]);
  }
}

// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Body of the weight-product kernels on Vec; contracts in matmul_kernels.h. Included inside each ISA's
// namespace after mat_vec_simd-inl.h.

template <typename F, int kIndex, int kEnd>
inline void StoreColumns(const std::byte* sub, const typename F::Scales (&scales)[kHalves],
                         float* out, std::size_t stride) {
  if constexpr (kIndex < kEnd) {
    for (int h = 0; h < kHalves; ++h) {
      Vec w[F::kColumns];
      F::template LoadColumns<kIndex>(sub, h, scales[h], w);
      for (std::size_t i = 0; i < F::kColumns; ++i) {
        Store(out + (kIndex * F::kColumns + i) * stride + 16 * h, w[i]);
      }
    }
    StoreColumns<F, kIndex + 1, kEnd>(sub, scales, out, stride);
  }
}

template <typename F, int kPart = 0>
inline void StoreParts(const std::byte* block, const std::byte* sub, float* out,
                       std::size_t stride) {
  if constexpr (kPart < static_cast<int>(F::kParts)) {
    constexpr int kQuads = F::kBlockColumns / F::kSubs / F::kParts / F::kColumns;
    typename F::Scales scales[kHalves];
    for (int h = 0; h < kHalves; ++h) scales[h] = F::LoadScales(block, sub, kPart, h);
    StoreColumns<F, kPart * kQuads, (kPart + 1) * kQuads>(sub, scales, out, stride);
    StoreParts<F, kPart + 1>(block, sub, out, stride);
  }
}

template <typename F>
inline void DequantizePanel(const std::byte* block, std::size_t n_cols, float* out,
                            std::size_t stride) noexcept {
  for (std::size_t col = 0; col < n_cols; col += F::kBlockColumns) {
    const std::byte* sub = block + F::kHeaderBytes;
    for (std::size_t s = 0; s < F::kSubs; ++s, sub += F::kSubBytes) {
      StoreParts<F>(block, sub, out + (col + s * kSubColumns) * stride, stride);
    }
    block = sub;
  }
}

// The kernels of a type.
struct FormatKernels {
  decltype(&MatVecPanels<FormatPlain<float, &Load>>) mat_vec;
  decltype(&MatVecDigitPanels<FormatQuantized<WeightType::kQ8_0>>) mat_vec_digits;
  decltype(&DequantizePanel<FormatPlain<float, &Load>>) dequantize;
};

template <typename T, Vec (*kLoad)(const T*)>
inline constexpr FormatKernels kPlain = {&MatVecPanels<FormatPlain<T, kLoad>>, nullptr,
                                         &DequantizePanel<FormatPlain<T, kLoad>>};

template <WeightType kType>
inline constexpr FormatKernels kQuantized = {&MatVecPanels<FormatQuantized<kType>>,
                                             &MatVecDigitPanels<FormatQuantized<kType>>,
                                             &DequantizePanel<FormatQuantized<kType>>};

inline const FormatKernels& KernelsOf(WeightType type) noexcept {
  switch (type) {
    case WeightType::kF32: break;
    case WeightType::kF16: return kPlain<std::uint16_t, &LoadHalf>;
    case WeightType::kBF16: return kPlain<std::uint16_t, &LoadBFloat16>;
    case WeightType::kQ8_0: return kQuantized<WeightType::kQ8_0>;
    case WeightType::kQ4_0: return kQuantized<WeightType::kQ4_0>;
    case WeightType::kQ4_1: return kQuantized<WeightType::kQ4_1>;
    case WeightType::kQ5_0: return kQuantized<WeightType::kQ5_0>;
    case WeightType::kQ5_1: return kQuantized<WeightType::kQ5_1>;
    case WeightType::kIQ4_NL: return kQuantized<WeightType::kIQ4_NL>;
    case WeightType::kQ2_K: return kQuantized<WeightType::kQ2_K>;
    case WeightType::kQ3_K: return kQuantized<WeightType::kQ3_K>;
    case WeightType::kQ4_K: return kQuantized<WeightType::kQ4_K>;
    case WeightType::kQ5_K: return kQuantized<WeightType::kQ5_K>;
    case WeightType::kQ6_K: return kQuantized<WeightType::kQ6_K>;
  }
  return kPlain<float, &Load>;
}

inline void MatVec(WeightType type, const std::byte* panels, std::size_t n_panels,
                   std::size_t n_cols, const float* x, float* y) noexcept {
  KernelsOf(type).mat_vec(panels, n_panels, n_cols, x, y);
}

inline void MatVecDigits(WeightType type, const std::byte* panels, std::size_t n_panels,
                         std::size_t n_cols, const ActivationGroup* x, float* y) noexcept {
  KernelsOf(type).mat_vec_digits(panels, n_panels, n_cols, x, y);
}

inline void Dequantize(WeightType type, const std::byte* panel, std::size_t n_cols, float* out,
                       std::size_t stride) noexcept {
  KernelsOf(type).dequantize(panel, n_cols, out, stride);
}

// Nearest integers, ties to even, of numbers below 2^22.
inline Vec RoundNearest(Vec a) {
  const Vec kShift = Set1(12582912.0f);  // 1.5 * 2^23
  return Sub(Add(a, kShift), kShift);
}

inline void ToDigits(const float* x, std::size_t n_groups, ActivationGroup* out) noexcept {
  constexpr float kLargest = 127 << kDigitBits;
  for (std::size_t g = 0; g < n_groups; ++g, x += kSubColumns, ++out) {
    Vec number[2] = {Load(x), Load(x + 16)};
    const Vec zero = Set1(0.0f);
    const float largest = ReduceMax(Max(Max(number[0], Sub(zero, number[0])),
                                        Max(number[1], Sub(zero, number[1]))));
    const float finite = ReduceAdd(Add(Mul(number[0], zero), Mul(number[1], zero)));  // 0 or NaN
    const bool usable = finite == 0.0f && largest > kLeastActivation;
    const float inverse = usable ? kLargest / largest : 0.0f;
    out->scale = usable ? largest / kLargest : finite;
    for (int i = 0; i < 2; ++i) {
      Vec whole = usable ? RoundNearest(Mul(number[i], Set1(inverse))) : zero;
      const Vec high = RoundNearest(Mul(whole, Set1(1.0f / (1 << kDigitBits))));
      StoreRounded(out->high + 16 * i, high);
      StoreRounded(out->low + 16 * i, Fma(high, Set1(-1.0f * (1 << kDigitBits)), whole));
      out->sum[i] = static_cast<std::int32_t>(ReduceAdd(whole));
    }
  }
}

inline void SiluMul(float* gate, const float* up, std::size_t n) noexcept {
  const Vec kMinusLog2E = Set1(-1.44269504088896341f);
  for (std::size_t i = 0; i < n; i += 16) {
    const Vec g = Load(gate + i);
    const Vec denominator = Add(Set1(1.0f), Exp2(Mul(g, kMinusLog2E)));
    Store(gate + i, Mul(Div(g, denominator), Load(up + i)));
  }
}

// x / 2 (1 + tanh(u)) = x / (1 + e^(-2 u)).
inline void GeluMul(float* gate, const float* up, std::size_t n) noexcept {
  const Vec kMinus2Log2E = Set1(-2.0f * 1.44269504088896341f);
  const Vec kRoot = Set1(0.797884560802865356f);  // sqrt(2 / pi)
  const Vec kCubic = Set1(0.044715f);
  for (std::size_t i = 0; i < n; i += 16) {
    const Vec g = Load(gate + i);
    const Vec u = Mul(kRoot, Fma(Mul(kCubic, Mul(g, g)), g, g));
    const Vec denominator = Add(Set1(1.0f), Exp2(Mul(u, kMinus2Log2E)));
    Store(gate + i, Mul(Div(g, denominator), Load(up + i)));
  }
}

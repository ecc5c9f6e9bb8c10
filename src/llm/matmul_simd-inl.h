// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Body of the weight-product kernels on Vec; contracts in matmul_kernels.h, layouts in weight_layout.h.
//
// A format decodes kColumns columns at a time: LoadColumns(sub_block, column, scales, Vec w[kColumns]). The
// columns of a sub-block (kScaleColumns) share LoadScales(block, sub_block); kBlockColumns share the header.

template <typename T, Vec (*kLoad)(const T*)>
struct FormatPlain {
  static constexpr std::size_t kBlockColumns = 1, kScaleColumns = 1, kColumns = 1;
  static constexpr std::size_t kHeaderBytes = 0, kSubBytes = 16 * sizeof(T), kBlockBytes = kSubBytes;
  struct Scales {};
  static Scales LoadScales(const std::byte*, const std::byte*) { return {}; }
  static void LoadColumns(const std::byte* sub, std::size_t, Scales, Vec* w) {
    w[0] = kLoad(reinterpret_cast<const T*>(sub));
  }
};

// kBits bits from bit kFrom on of every byte, moved to bit kTo.
template <int kBits, int kFrom, int kTo>
inline VecU BitField(VecU bytes) {
  const VecU mask = Set1U32(((1u << kBits) - 1) << kTo);
  if constexpr (kFrom + kBits == 8 && kTo == 0) {
    return ShiftRight<kFrom>(bytes);  // nothing lies above
  } else if constexpr (kFrom >= kTo) {
    return And(ShiftRight<kFrom - kTo>(bytes), mask);
  } else {
    return And(ShiftLeft<kTo - kFrom>(bytes), mask);
  }
}

// The codes of column i and of those up to kColumns as floats, from planes of kLow and kHigh bits (0: none).
template <int kLow, int kHigh, int kColumns, int i = 0>
inline void JoinPlanes(const std::uint8_t* low, const std::uint8_t* high, Vec* w) {
  if constexpr (i < kColumns) {
    VecU code = BitField<kLow, i * kLow % 8, 0>(LoadU8(low + i * kLow / 8 * 16));
    if constexpr (kHigh != 0) {
      code = Or(code, BitField<kHigh, i * kHigh, kLow>(LoadU8(high)));
    }
    w[i] = U32ToFloat(code);
    JoinPlanes<kLow, kHigh, kColumns, i + 1>(low, high, w);
  }
}

// The values are those of PanelLayout. (q - zero) s = q s - zero s: both products are exact or, in Q6_K's
// first, kept exact inside the fused operation, so this form rounds where the definition does.
template <WeightType kType>
struct FormatQuantized {
  static constexpr PanelLayout kLayout = LayoutOf(kType);
  static constexpr std::size_t kBlockColumns = kLayout.block_columns;
  static constexpr std::size_t kScaleColumns = kLayout.sub_columns;
  static constexpr std::size_t kHeaderBytes = kLayout.HeaderBytes();
  static constexpr std::size_t kSubBytes = kLayout.SubBytes();
  static constexpr std::size_t kBlockBytes = kLayout.BlockBytes();
  static constexpr std::size_t kScaleBytes = kLayout.ScaleBytes();
  static constexpr std::size_t kLowBytes = kLayout.LowBytes();
  static constexpr int kLow = kLayout.low_bits, kHigh = kLayout.high_bits;
  // As many as share a byte.
  static constexpr std::size_t kColumns = 8 / (kHigh != 0 ? kHigh : kLow);

  struct Scales {
    Vec scale, min;  // a weight is code * scale + min
  };

  static Scales LoadScales(const std::byte* block, const std::byte* sub) {
    const auto* halfs = reinterpret_cast<const std::uint16_t*>(block);
    const auto* bytes = reinterpret_cast<const std::int8_t*>(sub);
    const Vec d = LoadHalf(halfs);
    if constexpr (kLayout.n_halfs == 1) {
      const Vec scale = kLayout.scale_bytes == 0 ? d : Mul(d, LoadInt8(bytes));
      return {scale, Mul(scale, Set1(-static_cast<float>(kLayout.zero_code)))};
    } else if constexpr (kLayout.scale_bytes == 0) {
      return {d, LoadHalf(halfs + 16)};
    } else {
      Vec scale, min;
      if constexpr (kLayout.scale_bytes == 1) {
        LoadNibbles(reinterpret_cast<const std::uint8_t*>(bytes), &scale, &min);
      } else {
        scale = LoadInt8(bytes);
        min = LoadInt8(bytes + 16);
      }
      return {Mul(d, scale), Mul(LoadHalf(halfs + 16), Mul(min, Set1(-1.0f)))};
    }
  }

  static void LoadColumns(const std::byte* sub, std::size_t column, const Scales& s, Vec* w) {
    const auto* low = reinterpret_cast<const std::uint8_t*>(sub + kScaleBytes + column * kLow * 2);
    if constexpr (kType == WeightType::kQ8_0) {
      w[0] = Mul(LoadInt8(reinterpret_cast<const std::int8_t*>(low)), s.scale);
    } else if constexpr (kType == WeightType::kIQ4_NL) {
      const Vec table = Load(kIq4NlValues);
      const VecU pair = LoadU8(low);
      w[0] = Mul(Lookup16(table, pair), s.scale);
      w[1] = Mul(Lookup16(table, ShiftRight<4>(pair)), s.scale);
    } else {
      if constexpr (kLow == 4 && kHigh == 0) {
        LoadNibbles(low, w, w + 1);
      } else {
        const std::byte* high = sub + kScaleBytes + kLowBytes + column * kHigh * 2;
        JoinPlanes<kLow, kHigh, kColumns>(low, reinterpret_cast<const std::uint8_t*>(high), w);
      }
      for (std::size_t i = 0; i < kColumns; ++i) w[i] = Fma(w[i], s.scale, s.min);
    }
  }
};

// Two panels side by side: two independent chains hide the latency of the fused multiply-add.
template <typename F>
inline void MatVecPair(const std::byte* first, std::size_t panel_bytes, std::size_t n_cols,
                       const float* x, float* y) noexcept {
  const std::byte* second = first + panel_bytes;
  Vec acc0 = Set1(0.0f);
  Vec acc1 = Set1(0.0f);
  for (std::size_t col = 0; col < n_cols; col += F::kBlockColumns) {
    const std::byte* sub0 = first + F::kHeaderBytes;
    const std::byte* sub1 = second + F::kHeaderBytes;
    for (std::size_t s = col; s < col + F::kBlockColumns; s += F::kScaleColumns) {
      const typename F::Scales scales0 = F::LoadScales(first, sub0);
      const typename F::Scales scales1 = F::LoadScales(second, sub1);
      for (std::size_t c = 0; c < F::kScaleColumns; c += F::kColumns) {
        Vec w0[F::kColumns], w1[F::kColumns];
        F::LoadColumns(sub0, c, scales0, w0);
        F::LoadColumns(sub1, c, scales1, w1);
        for (std::size_t i = 0; i < F::kColumns; ++i) {
          const Vec value = Set1(x[s + c + i]);
          acc0 = Fma(value, w0[i], acc0);
          acc1 = Fma(value, w1[i], acc1);
        }
      }
      sub0 += F::kSubBytes;
      sub1 += F::kSubBytes;
    }
    first += F::kBlockBytes;
    second += F::kBlockBytes;
  }
  Store(y, acc0);
  Store(y + 16, acc1);
}

template <typename F>
inline void DequantizePanel(const std::byte* block, std::size_t n_cols, float* out,
                            std::size_t stride) noexcept {
  for (std::size_t col = 0; col < n_cols; col += F::kBlockColumns) {
    const std::byte* sub = block + F::kHeaderBytes;
    for (std::size_t s = col; s < col + F::kBlockColumns; s += F::kScaleColumns) {
      const typename F::Scales scales = F::LoadScales(block, sub);
      for (std::size_t c = 0; c < F::kScaleColumns; c += F::kColumns) {
        Vec w[F::kColumns];
        F::LoadColumns(sub, c, scales, w);
        for (std::size_t i = 0; i < F::kColumns; ++i) Store(out + (s + c + i) * stride, w[i]);
      }
      sub += F::kSubBytes;
    }
    block += F::kBlockBytes;
  }
}

// The kernels of a type.
struct FormatKernels {
  void (*mat_vec)(const std::byte* panels, std::size_t panel_bytes, std::size_t n_cols,
                  const float* x, float* y) noexcept;
  void (*dequantize)(const std::byte* panel, std::size_t n_cols, float* out,
                     std::size_t stride) noexcept;
};

template <typename F>
inline constexpr FormatKernels kKernelsOf = {&MatVecPair<F>, &DequantizePanel<F>};

inline const FormatKernels& KernelsOf(WeightType type) noexcept {
  switch (type) {
    case WeightType::kF32: break;
    case WeightType::kF16: return kKernelsOf<FormatPlain<std::uint16_t, &LoadHalf>>;
    case WeightType::kBF16: return kKernelsOf<FormatPlain<std::uint16_t, &LoadBFloat16>>;
    case WeightType::kQ8_0: return kKernelsOf<FormatQuantized<WeightType::kQ8_0>>;
    case WeightType::kQ4_0: return kKernelsOf<FormatQuantized<WeightType::kQ4_0>>;
    case WeightType::kQ4_1: return kKernelsOf<FormatQuantized<WeightType::kQ4_1>>;
    case WeightType::kQ5_0: return kKernelsOf<FormatQuantized<WeightType::kQ5_0>>;
    case WeightType::kQ5_1: return kKernelsOf<FormatQuantized<WeightType::kQ5_1>>;
    case WeightType::kIQ4_NL: return kKernelsOf<FormatQuantized<WeightType::kIQ4_NL>>;
    case WeightType::kQ2_K: return kKernelsOf<FormatQuantized<WeightType::kQ2_K>>;
    case WeightType::kQ3_K: return kKernelsOf<FormatQuantized<WeightType::kQ3_K>>;
    case WeightType::kQ4_K: return kKernelsOf<FormatQuantized<WeightType::kQ4_K>>;
    case WeightType::kQ5_K: return kKernelsOf<FormatQuantized<WeightType::kQ5_K>>;
    case WeightType::kQ6_K: return kKernelsOf<FormatQuantized<WeightType::kQ6_K>>;
  }
  return kKernelsOf<FormatPlain<float, &Load>>;
}

inline void MatVec(WeightType type, const std::byte* panels, std::size_t panel_bytes,
                   std::size_t n_cols, const float* x, float* y) noexcept {
  KernelsOf(type).mat_vec(panels, panel_bytes, n_cols, x, y);
}

inline void Dequantize(WeightType type, const std::byte* panel, std::size_t n_cols, float* out,
                       std::size_t stride) noexcept {
  KernelsOf(type).dequantize(panel, n_cols, out, stride);
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

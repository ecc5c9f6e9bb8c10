// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Body of the weight-product kernels on Vec; contracts in matmul_kernels.h, layouts in weight_matrix.h.
//
// A format decodes `kColumns` columns of a panel at a time: Load(block, column, Vec out[kColumns]).

struct FormatF32 {
  static constexpr std::size_t kBlockColumns = 1, kColumns = 1;
  static constexpr std::size_t kBlockBytes = 64;
  struct Scales {};
  static Scales LoadScales(const std::byte*) { return {}; }
  static void LoadColumns(const std::byte* block, std::size_t, Scales, Vec* w) {
    w[0] = Load(reinterpret_cast<const float*>(block));
  }
};

struct FormatF16 {
  static constexpr std::size_t kBlockColumns = 1, kColumns = 1;
  static constexpr std::size_t kBlockBytes = 32;
  struct Scales {};
  static Scales LoadScales(const std::byte*) { return {}; }
  static void LoadColumns(const std::byte* block, std::size_t, Scales, Vec* w) {
    w[0] = LoadHalf(reinterpret_cast<const std::uint16_t*>(block));
  }
};

struct FormatBF16 {
  static constexpr std::size_t kBlockColumns = 1, kColumns = 1;
  static constexpr std::size_t kBlockBytes = 32;
  struct Scales {};
  static Scales LoadScales(const std::byte*) { return {}; }
  static void LoadColumns(const std::byte* block, std::size_t, Scales, Vec* w) {
    w[0] = LoadBFloat16(reinterpret_cast<const std::uint16_t*>(block));
  }
};

struct FormatQ8_0 {
  static constexpr std::size_t kBlockColumns = 32, kColumns = 1;
  static constexpr std::size_t kBlockBytes = 32 + 32 * 16;
  struct Scales {
    Vec d;
  };
  static Scales LoadScales(const std::byte* block) {
    return {LoadHalf(reinterpret_cast<const std::uint16_t*>(block))};
  }
  static void LoadColumns(const std::byte* block, std::size_t column, Scales s, Vec* w) {
    w[0] = Mul(LoadInt8(reinterpret_cast<const std::int8_t*>(block + 32 + column * 16)), s.d);
  }
};

struct FormatQ4_0 {
  static constexpr std::size_t kBlockColumns = 32, kColumns = 2;
  static constexpr std::size_t kBlockBytes = 32 + 16 * 16;
  struct Scales {
    Vec d, minus_8d;
  };
  static Scales LoadScales(const std::byte* block) {
    const Vec d = LoadHalf(reinterpret_cast<const std::uint16_t*>(block));
    return {d, Mul(d, Set1(-8.0f))};
  }
  // (q - 8) * d = q * d - 8 * d: every product is exact, so the sum is rounded only where it is in GGUF's
  // definition, that is never (15 significant bits).
  static void LoadColumns(const std::byte* block, std::size_t column, Scales s, Vec* w) {
    LoadNibbles(reinterpret_cast<const std::uint8_t*>(block + 32 + column * 8), w, w + 1);
    w[0] = Fma(w[0], s.d, s.minus_8d);
    w[1] = Fma(w[1], s.d, s.minus_8d);
  }
};

struct FormatQ4_1 {
  static constexpr std::size_t kBlockColumns = 32, kColumns = 2;
  static constexpr std::size_t kBlockBytes = 64 + 16 * 16;
  struct Scales {
    Vec d, m;
  };
  static Scales LoadScales(const std::byte* block) {
    const auto* halves = reinterpret_cast<const std::uint16_t*>(block);
    return {LoadHalf(halves), LoadHalf(halves + 16)};
  }
  // q * d is exact (15 bits), so the fused form rounds once, like GGUF's q * d + m.
  static void LoadColumns(const std::byte* block, std::size_t column, Scales s, Vec* w) {
    LoadNibbles(reinterpret_cast<const std::uint8_t*>(block + 64 + column * 8), w, w + 1);
    w[0] = Fma(w[0], s.d, s.m);
    w[1] = Fma(w[1], s.d, s.m);
  }
};

// Two panels side by side: two independent chains hide the latency of the fused multiply-add.
template <typename F>
inline void MatVecPair(const std::byte* first, std::size_t panel_bytes, std::size_t n_cols,
                       const float* x, float* y) {
  const std::byte* second = first + panel_bytes;
  Vec acc0 = Set1(0.0f);
  Vec acc1 = Set1(0.0f);
  for (std::size_t col = 0; col < n_cols; col += F::kBlockColumns) {
    const typename F::Scales scales0 = F::LoadScales(first);
    const typename F::Scales scales1 = F::LoadScales(second);
    for (std::size_t c = 0; c < F::kBlockColumns; c += F::kColumns) {
      Vec w0[F::kColumns], w1[F::kColumns];
      F::LoadColumns(first, c, scales0, w0);
      F::LoadColumns(second, c, scales1, w1);
      for (std::size_t i = 0; i < F::kColumns; ++i) {
        const Vec value = Set1(x[col + c + i]);
        acc0 = Fma(value, w0[i], acc0);
        acc1 = Fma(value, w1[i], acc1);
      }
    }
    first += F::kBlockBytes;
    second += F::kBlockBytes;
  }
  Store(y, acc0);
  Store(y + 16, acc1);
}

template <typename F>
inline void DequantizePanel(const std::byte* block, std::size_t n_cols, float* out,
                            std::size_t stride) {
  for (std::size_t col = 0; col < n_cols; col += F::kBlockColumns) {
    const typename F::Scales scales = F::LoadScales(block);
    for (std::size_t c = 0; c < F::kBlockColumns; c += F::kColumns) {
      Vec w[F::kColumns];
      F::LoadColumns(block, c, scales, w);
      for (std::size_t i = 0; i < F::kColumns; ++i) Store(out + (col + c + i) * stride, w[i]);
    }
    block += F::kBlockBytes;
  }
}

inline void MatVec(WeightType type, const std::byte* panels, std::size_t panel_bytes,
                   std::size_t n_cols, const float* x, float* y) noexcept {
  switch (type) {
    case WeightType::kF32: return MatVecPair<FormatF32>(panels, panel_bytes, n_cols, x, y);
    case WeightType::kF16: return MatVecPair<FormatF16>(panels, panel_bytes, n_cols, x, y);
    case WeightType::kBF16: return MatVecPair<FormatBF16>(panels, panel_bytes, n_cols, x, y);
    case WeightType::kQ8_0: return MatVecPair<FormatQ8_0>(panels, panel_bytes, n_cols, x, y);
    case WeightType::kQ4_0: return MatVecPair<FormatQ4_0>(panels, panel_bytes, n_cols, x, y);
    case WeightType::kQ4_1: return MatVecPair<FormatQ4_1>(panels, panel_bytes, n_cols, x, y);
  }
}

inline void Dequantize(WeightType type, const std::byte* panel, std::size_t n_cols, float* out,
                       std::size_t stride) noexcept {
  switch (type) {
    case WeightType::kF32: return DequantizePanel<FormatF32>(panel, n_cols, out, stride);
    case WeightType::kF16: return DequantizePanel<FormatF16>(panel, n_cols, out, stride);
    case WeightType::kBF16: return DequantizePanel<FormatBF16>(panel, n_cols, out, stride);
    case WeightType::kQ8_0: return DequantizePanel<FormatQ8_0>(panel, n_cols, out, stride);
    case WeightType::kQ4_0: return DequantizePanel<FormatQ4_0>(panel, n_cols, out, stride);
    case WeightType::kQ4_1: return DequantizePanel<FormatQ4_1>(panel, n_cols, out, stride);
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

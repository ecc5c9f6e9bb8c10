// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Body of GemmTile on Vec, included inside each ISA's namespace (see gemm_tile.h for the contract).

// A slab of k x (kTileVecs * 16) floats of B stays in the first-level cache while all rows pass over it.
inline constexpr std::size_t kSlabDepth = 96;

enum class GemmStart { kZero, kScale, kContinue };

template <int kRows, int kVecs>
inline void GemmRegisterTile(const GemmTileArgs& g, std::size_t row, std::size_t col,
                             std::size_t k_begin, std::size_t k_end, GemmStart start) {
  Vec acc[kRows][kVecs];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) {
      const float* c = g.c + (row + r) * g.c_stride + col + v * 16;
      if (start == GemmStart::kZero) {
        acc[r][v] = Set1(0.0f);
      } else if (start == GemmStart::kContinue) {
        acc[r][v] = Load(c);
      } else {
        acc[r][v] = Mul(Load(c), Set1(g.c_scale[(row + r) * g.c_scale_stride]));
      }
    }
  }
  const float* a = g.a + row * g.a_stride;
  for (std::size_t k = k_begin; k < k_end; ++k) {
    Vec b[kVecs];
    for (int v = 0; v < kVecs; ++v) b[v] = Load(g.b + k * g.b_stride + col + v * 16);
    for (int r = 0; r < kRows; ++r) {
      const Vec x = Set1(a[r * g.a_stride + k]);
      for (int v = 0; v < kVecs; ++v) acc[r][v] = Fma(x, b[v], acc[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) Store(g.c + (row + r) * g.c_stride + col + v * 16, acc[r][v]);
  }
}

template <int kVecs>
inline void GemmRows(const GemmTileArgs& g, std::size_t col, std::size_t k_begin, std::size_t k_end,
                     GemmStart start) {
  std::size_t row = 0;
  for (; row + kTileRows <= g.n_rows; row += kTileRows) {
    GemmRegisterTile<kTileRows, kVecs>(g, row, col, k_begin, k_end, start);
  }
  if (kTileRows > 4 && row + 4 <= g.n_rows) {
    GemmRegisterTile<4, kVecs>(g, row, col, k_begin, k_end, start);
    row += 4;
  }
  if (row + 2 <= g.n_rows) {
    GemmRegisterTile<2, kVecs>(g, row, col, k_begin, k_end, start);
    row += 2;
  }
  for (; row < g.n_rows; ++row) GemmRegisterTile<1, kVecs>(g, row, col, k_begin, k_end, start);
}

inline void GemmTile(const GemmTileArgs& g) noexcept {
  for (std::size_t k_begin = 0; k_begin == 0 || k_begin < g.k; k_begin += kSlabDepth) {
    const std::size_t k_end = k_begin + kSlabDepth < g.k ? k_begin + kSlabDepth : g.k;
    const GemmStart start = k_begin > 0            ? GemmStart::kContinue
                            : g.c_scale != nullptr ? GemmStart::kScale
                                                   : GemmStart::kZero;
    std::size_t col = 0;
    for (; col + kTileVecs * 16 <= g.n; col += kTileVecs * 16) {
      GemmRows<kTileVecs>(g, col, k_begin, k_end, start);
    }
    if (kTileVecs > 2 && col + 32 <= g.n) {
      GemmRows<2>(g, col, k_begin, k_end, start);
      col += 32;
    }
    for (; col < g.n; col += 16) GemmRows<1>(g, col, k_begin, k_end, start);
  }
}

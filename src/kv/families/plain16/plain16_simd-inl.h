// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Kernels of the plain 16-bit codecs on Vec; included inside each ISA's namespace after a
// vec_*-inl.h and after `struct Format` with
//   static Vec LoadRow(const std::uint16_t*), static void StoreRow(std::uint16_t*, Vec),
//   static bool IsFinite(std::uint16_t)
// The layout is drawn in plain16.h.

inline const std::uint16_t* Numbers(const std::byte* block) {
  return reinterpret_cast<const std::uint16_t*>(block);
}

// One row to 16-bit numbers; false where one of them is not finite.
inline bool RoundRow(const float* row, std::size_t head_dim, std::uint16_t* out) {
  for (std::size_t i = 0; i < head_dim; i += 16) Format::StoreRow(out + i, Load(row + i));
  bool finite = true;
  for (std::size_t i = 0; i < head_dim; ++i) finite &= Format::IsFinite(out[i]);
  return finite;
}

inline std::size_t Encode(Side side, const EncodeArgs& e) noexcept {
  std::uint16_t rounded[1024];  // RefuseHeadDim bounds head_dim
  std::uint16_t* out = reinterpret_cast<std::uint16_t*>(e.block);
  for (std::size_t r = 0; r < e.n_rows; ++r) {
    const float* row = e.rows + r * e.row_stride;
    // NaN is refused on the input: the integer rounding of bf16 would turn some into infinity or zero.
    for (std::size_t i = 0; i < e.head_dim; ++i) {
      if (row[i] != row[i]) return r;
    }
    if (!RoundRow(row, e.head_dim, rounded)) return r;
    const std::size_t token = e.first + r;
    if (side == Side::kKey) {
      for (std::size_t i = 0; i < e.head_dim; ++i) out[i * kBlockTokens + token] = rounded[i];
    } else {
      for (std::size_t i = 0; i < e.head_dim; ++i) out[token * e.head_dim + i] = rounded[i];
    }
  }
  return e.n_rows;
}

inline void Decode(Side, const DecodeArgs& d) noexcept {
  const std::uint16_t* in = Numbers(d.block);
  for (std::size_t i = 0; i < kBlockTokens * d.head_dim; i += 16) {  // the tile has the block's order
    Store(d.tile + i, Format::LoadRow(in + i));
  }
}

inline void Widen(const std::byte* numbers, std::size_t n, float* out) noexcept {
  for (std::size_t i = 0; i < n; i += 16) Store(out + i, Format::LoadRow(Numbers(numbers) + i));
}

inline void StoreKeyTile(std::size_t head_dim, const float* tile, std::byte* block) noexcept {
  std::uint16_t* out = reinterpret_cast<std::uint16_t*>(block);
  for (std::size_t i = 0; i < kBlockTokens * head_dim; i += 16) {
    const Vec row = Load(tile + i);
    const Vec below = SelectLess(row, Set1(Format::kLargest), row, Set1(Format::kLargest));
    Format::StoreRow(out + i, Max(below, Set1(-Format::kLargest)));
  }
}

// Dimensions or tokens between two steps of ReadAhead.
inline constexpr std::size_t kStepEvery = 4;

// How often the rows of a block are gone through.
inline std::size_t Passes(std::size_t n_query) { return (n_query + 3) / 4; }

// kRows queries against kTiles key tiles of one block, starting at `tile`. One chain of fused
// multiply-adds over the dimensions for each score: the order of GemmTile, hence its bits.
template <int kRows, int kTiles>
inline void ScoreTiles(const ScoreArgs& s, const std::uint16_t* keys, std::size_t tile,
                       const float* query, float* scores) {
  Vec acc[kRows][kTiles];
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTiles; ++t) acc[r][t] = Set1(0.0f);
  }
  const std::uint16_t* base = keys + tile * 16;
  for (std::size_t i = 0; i < s.head_dim; ++i) {
    if (s.ahead != nullptr && i % kStepEvery == 0) s.ahead->Step();
    Vec k[kTiles];
    for (int t = 0; t < kTiles; ++t) k[t] = Format::LoadRow(base + i * kBlockTokens + t * 16);
    for (int r = 0; r < kRows; ++r) {
      const Vec q = Set1(query[r * s.head_dim + i]);
      for (int t = 0; t < kTiles; ++t) acc[r][t] = Fma(q, k[t], acc[r][t]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTiles; ++t) {
      Store(scores + r * s.scores_stride + (tile + t) * 16, acc[r][t]);
    }
  }
}

template <int kRows>
inline void ScoreRows(const ScoreArgs& s, std::size_t row) {
  const float* query = reinterpret_cast<const float*>(s.query) + row * s.head_dim;
  for (std::size_t b = 0; b < s.n_blocks; ++b) {
    float* scores = s.scores + row * s.scores_stride + b * kBlockTokens;
    for (std::size_t tile = 0; tile < kBlockTokens / 16; tile += kTileVecs) {
      ScoreTiles<kRows, kTileVecs>(s, Numbers(s.blocks[b]), tile, query, scores);
    }
  }
}

inline void Score(const ScoreArgs& s) noexcept {
  if (s.ahead != nullptr) {
    const std::size_t n_pass = Passes(s.n_query) * (kBlockTokens / 16 / kTileVecs);
    s.ahead->Begin(ReadAhead::Phase::kScore, s.n_blocks * n_pass * s.head_dim / kStepEvery);
  }
  std::size_t row = 0;
  for (; row + 4 <= s.n_query; row += 4) ScoreRows<4>(s, row);
  const std::size_t rest = s.n_query - row;
  if (rest == 3) ScoreRows<3>(s, row);
  if (rest == 2) ScoreRows<2>(s, row);
  if (rest == 1) ScoreRows<1>(s, row);
}

template <int kRows, int kVecs>
inline void AccumulateColumns(const AccumulateArgs& a, std::size_t row, std::size_t col) {
  Vec acc[kRows][kVecs];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) {
      acc[r][v] = Load(a.output + (row + r) * a.head_dim + col + v * 16);
    }
  }
  for (std::size_t b = 0; b < a.n_blocks; ++b) {
    const std::uint16_t* values = Numbers(a.blocks[b]) + col;
    const float* weights = a.weights + row * a.weights_stride + b * kBlockTokens;
    for (int r = 0; r < kRows; ++r) {
      const Vec scale = Set1(a.rescale[(row + r) * a.rescale_stride + b]);
      for (int v = 0; v < kVecs; ++v) acc[r][v] = Mul(acc[r][v], scale);
    }
    for (std::size_t t = 0; t < kBlockTokens; ++t) {
      if (a.ahead != nullptr && t % kStepEvery == 0) a.ahead->Step();
      Vec value[kVecs];
      for (int v = 0; v < kVecs; ++v) value[v] = Format::LoadRow(values + t * a.head_dim + v * 16);
      for (int r = 0; r < kRows; ++r) {
        const Vec w = Set1(weights[r * a.weights_stride + t]);
        for (int v = 0; v < kVecs; ++v) acc[r][v] = Fma(w, value[v], acc[r][v]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) {
      Store(a.output + (row + r) * a.head_dim + col + v * 16, acc[r][v]);
    }
  }
}

template <int kRows>
inline void AccumulateRows(const AccumulateArgs& a, std::size_t row) {
  std::size_t col = 0;
  for (; col + kTileVecs * 16 <= a.head_dim; col += kTileVecs * 16) {
    AccumulateColumns<kRows, kTileVecs>(a, row, col);
  }
  for (; col < a.head_dim; col += 16) AccumulateColumns<kRows, 1>(a, row, col);
}

inline void Accumulate(const AccumulateArgs& a) noexcept {
  if (a.ahead != nullptr) {
    const std::size_t n_vec = a.head_dim / 16;
    const std::size_t n_pass = Passes(a.n_query) * (n_vec / kTileVecs + n_vec % kTileVecs);
    a.ahead->Begin(ReadAhead::Phase::kSum, a.n_blocks * n_pass * kBlockTokens / kStepEvery);
  }
  std::size_t row = 0;
  for (; row + 4 <= a.n_query; row += 4) AccumulateRows<4>(a, row);
  const std::size_t rest = a.n_query - row;
  if (rest == 3) AccumulateRows<3>(a, row);
  if (rest == 2) AccumulateRows<2>(a, row);
  if (rest == 1) AccumulateRows<1>(a, row);
}

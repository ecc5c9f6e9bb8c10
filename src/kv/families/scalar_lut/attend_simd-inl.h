// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Entry points of scores and sums: bytes up to 4 bits, floats above. Included inside each ISA's
// namespace after attend_bytes_simd-inl.h and attend_floats_simd-inl.h.

inline void Score(const ScoreArgs& s) noexcept {
  switch (ConfigOf(s.config).book->bits()) {
    case 1:
      return ScoreBytes<1>(s);
    case 2:
      return ScoreBytes<2>(s);
    case 3:
      return ScoreBytes<3>(s);
    case 4:
      return ScoreBytes<4>(s);
    case 5:
      return ScoreFloats<5>(s);
    case 6:
      return ScoreFloats<6>(s);
    case 7:
      return ScoreFloats<7>(s);
    default:
      return ScoreFloats<8>(s);
  }
}

inline void Accumulate(const AccumulateArgs& a) noexcept {
  switch (ConfigOf(a.config).book->bits()) {
    case 1:
      return SumBytes<1>(a);
    case 2:
      return SumBytes<2>(a);
    case 3:
      return SumBytes<3>(a);
    case 4:
      return SumBytes<4>(a);
    case 5:
      return SumFloats<5>(a);
    case 6:
      return SumFloats<6>(a);
    case 7:
      return SumFloats<7>(a);
    default:
      return SumFloats<8>(a);
  }
}

inline void PrepareQuery(const PrepareQueryArgs& a) noexcept {
  const Config& config = ConfigOf(a.config);
  for (std::size_t r = 0; r < a.n_query; ++r) {
    float row[kMaxHeadDim];
    std::memcpy(row, a.query + r * a.head_dim, a.head_dim * sizeof(float));
    RotateRow(config.rotation, row);
    std::byte* prepared = a.prepared + r * QueryBytes(config.book->bits(), a.head_dim);
    if (config.book->bits() <= kByteBits) {
      RoundQuery(config, row, a.head_dim, prepared);
    } else {
      std::memcpy(prepared, row, a.head_dim * sizeof(float));
    }
  }
}

inline void FinishOutput(const CodecConfig& config, std::size_t, float* output) noexcept {
  UnrotateRow(ConfigOf(&config).rotation, output);
}

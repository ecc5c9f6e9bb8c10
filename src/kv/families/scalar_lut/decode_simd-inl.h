// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Whole tiles from codes, on Vec; included inside each ISA's namespace after unpack_simd-inl.h.

// Number kNumber of eight along one group of lanes: keys [dim][token] and values [token][dim] both
// have the lanes as the fastest index of the tile.
template <unsigned kBits, int kNumber>
inline void DecodeNumber(const EightCodes<kBits>& codes, const Config& config, Vec table16,
                         Vec scale, float* out) {
  Store(out, Mul(codes.template Level<kNumber>(config.table.data(), table16), scale));
}

template <unsigned kBits>
inline void DecodeEight(Side side, const DecodeArgs& d, const PlaneWords& words, std::size_t group,
                        std::size_t eighth) {
  const Config& config = ConfigOf(d.config);
  const Vec table16 = Load(config.table.data());
  EightCodes<kBits> codes;
  codes.Load(words, group, eighth);
  const std::size_t stride = side == Side::kKey ? kBlockTokens : d.head_dim;
  float* out = d.tile + eighth * 8 * stride + group * kLanes;
  Vec scale[8];
  if (side == Side::kKey) {
    for (int i = 0; i < 8; ++i) scale[i] = LoadScalars(config, d.block, group * kLanes);
  } else {
    float scalars[16];
    Store(scalars, LoadScalars(config, d.block, eighth / 2 * kLanes));
    for (std::size_t i = 0; i < 8; ++i) scale[i] = Set1(scalars[eighth % 2 * 8 + i]);
  }
  DecodeNumber<kBits, 0>(codes, config, table16, scale[0], out + 0 * stride);
  DecodeNumber<kBits, 1>(codes, config, table16, scale[1], out + 1 * stride);
  DecodeNumber<kBits, 2>(codes, config, table16, scale[2], out + 2 * stride);
  DecodeNumber<kBits, 3>(codes, config, table16, scale[3], out + 3 * stride);
  DecodeNumber<kBits, 4>(codes, config, table16, scale[4], out + 4 * stride);
  DecodeNumber<kBits, 5>(codes, config, table16, scale[5], out + 5 * stride);
  DecodeNumber<kBits, 6>(codes, config, table16, scale[6], out + 6 * stride);
  DecodeNumber<kBits, 7>(codes, config, table16, scale[7], out + 7 * stride);
}

template <unsigned kBits>
inline void DecodeBits(Side side, const DecodeArgs& d) {
  const PlaneWords words = WordsOf(side, ConfigOf(d.config), d.block);
  const std::size_t n_group = (side == Side::kKey ? kBlockTokens : d.head_dim) / kLanes;
  const std::size_t n_eighth = (side == Side::kKey ? d.head_dim : kBlockTokens) / 8;
  for (std::size_t group = 0; group < n_group; ++group) {
    for (std::size_t eighth = 0; eighth < n_eighth; ++eighth) {
      DecodeEight<kBits>(side, d, words, group, eighth);
    }
  }
}

inline void Decode(Side side, const DecodeArgs& d) noexcept {
  const Config& config = ConfigOf(d.config);
  switch (config.book->bits()) {
    case 1:
      DecodeBits<1>(side, d);
      break;
    case 2:
      DecodeBits<2>(side, d);
      break;
    case 3:
      DecodeBits<3>(side, d);
      break;
    case 4:
      DecodeBits<4>(side, d);
      break;
    case 5:
      DecodeBits<5>(side, d);
      break;
    case 6:
      DecodeBits<6>(side, d);
      break;
    case 7:
      DecodeBits<7>(side, d);
      break;
    default:
      DecodeBits<8>(side, d);
      break;
  }
  if (side == Side::kKey) {
    UnrotateColumns(config.rotation, d.tile);
  } else {
    for (std::size_t t = 0; t < kBlockTokens; ++t) {
      UnrotateRow(config.rotation, d.tile + t * d.head_dim);
    }
  }
}

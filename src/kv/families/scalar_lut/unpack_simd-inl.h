// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Codes out of the words of scalar_lut.h on Vec; included inside each ISA's namespace after a vec_*-inl.h.

inline const Config& ConfigOf(const CodecConfig* config) {
  return *static_cast<const Config*>(config);
}

// The planes of one side of a block. Word w of lane group g starts at
// base[plane] + (w * word_stride[plane] + g * group_stride[plane]).
struct PlaneWords {
  const std::uint32_t* base[kMaxPlanes];
  std::size_t word_stride[kMaxPlanes];
  std::size_t group_stride[kMaxPlanes];
};

inline PlaneWords WordsOf(Side side, const Config& config, const std::byte* block) {
  PlaneWords words = {};
  for (std::size_t p = 0; p < config.n_plane; ++p) {
    const Plane& plane = config.planes[p];
    words.base[p] = reinterpret_cast<const std::uint32_t*>(block + plane.offset);
    const bool keys = side == Side::kKey;
    words.word_stride[p] = keys ? kBlockTokens : kLanes;
    words.group_stride[p] = keys ? kLanes : plane.n_word * kLanes;
  }
  return words;
}

// The words that hold eight codes along, for sixteen lanes: numbers 8 * eighth to 8 * eighth + 7.
template <unsigned kBits>
struct EightCodes {
  static constexpr unsigned kFirst = kBits >= 4 ? 4 : kBits >= 2 ? 2 : 1;
  static constexpr unsigned kRest = kBits - kFirst;
  static constexpr unsigned kSecond = kRest >= 4 ? 4 : kRest >= 2 ? 2 : kRest;
  static constexpr unsigned kThird = kRest - kSecond;

  VecU first, second, third;

  // A word of p bits serves 32 / p numbers; the eight at hand are brought down by p * 2 bits a step.
  template <unsigned kPlane>
  static VecU LoadPlane(const PlaneWords& words, int p, std::size_t group, std::size_t eighth) {
    constexpr std::size_t kEighths = 4 / kPlane;
    const VecU word = LoadU32(words.base[p] + (eighth / kEighths) * words.word_stride[p] +
                              group * words.group_stride[p]);
    if constexpr (kEighths == 1) return word;
    return ShiftRightBy(word, static_cast<unsigned>(2 * kPlane * (eighth % kEighths)));
  }

  void Load(const PlaneWords& words, std::size_t group, std::size_t eighth) {
    first = LoadPlane<kFirst>(words, 0, group, eighth);
    if constexpr (kSecond > 0) second = LoadPlane<kSecond>(words, 1, group, eighth);
    if constexpr (kThird > 0) third = LoadPlane<kThird>(words, 2, group, eighth);
  }

  template <unsigned kPlane, int kNumber>
  static VecU Part(VecU word) {
    constexpr int kBit = 8 * (kNumber % 4) + static_cast<int>(kPlane) * (kNumber / 4);
    if constexpr (kBit == 0) return word;
    return ShiftRight<kBit>(word);
  }
  template <unsigned kPlane, int kNumber>
  static VecU CleanPart(VecU word) {
    return And(Part<kPlane, kNumber>(word), Set1U32((1u << kPlane) - 1));
  }

  // Codes of up to 4 bits, four along (numbers 4 kHalf to 4 kHalf + 3), as the bytes of each lane: what
  // Config::bytes is indexed with.
  template <int kHalf>
  VecU Indices() const {
    static_assert(kBits <= 4);
    const VecU low = FourBytes<kFirst, kHalf>(first);
    if constexpr (kBits != 3) return low;
    return Or(low, ShiftLeft<2>(FourBytes<1, kHalf>(second)));
  }
  template <unsigned kPlane, int kHalf>
  static VecU FourBytes(VecU word) {
    const VecU mask = Set1U32(((1u << kPlane) - 1) * 0x01010101u);
    if constexpr (kHalf == 0) return And(word, mask);
    return And(ShiftRight<kPlane>(word), mask);
  }

  // The level of code kNumber (0 to 7), lane by lane.
  template <int kNumber>
  Vec Level(const float* table, Vec table16) const {
    if constexpr (kBits == 1 || kBits == 2 || kBits == 4) {
      return Lookup16(table16, Part<kFirst, kNumber>(first));
    } else if constexpr (kBits == 3) {
      return Lookup16(table16, Or(CleanPart<2, kNumber>(first),
                                  ShiftLeft<2>(Part<1, kNumber>(second))));
    } else {
      VecU code = Or(ShiftLeft<kRest>(CleanPart<kFirst, kNumber>(first)),
                     ShiftLeft<kThird>(CleanPart<kSecond, kNumber>(second)));
      if constexpr (kThird > 0) code = Or(code, CleanPart<kThird, kNumber>(third));
      return Gather(table, code);
    }
  }
};

// Scalars of 16 tokens.
inline Vec LoadScalars(const Config& config, const std::byte* block, std::size_t first) {
  return LoadHalf(reinterpret_cast<const std::uint16_t*>(block + config.scalar_offset) + first);
}

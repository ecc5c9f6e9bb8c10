// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The operations of VecU, the tables and the butterflies behind plain pointers, for vec_codes_test.cc; included
// once for each ISA after its vec_*-inl.h.

using Words = std::uint32_t;

inline void CopyOp(const Words* in, Words* out) noexcept { StoreU32(out, LoadU32(in)); }
inline void LoadU8Op(const std::uint8_t* in, Words* out) noexcept { StoreU32(out, LoadU8(in)); }
inline void ToFloatOp(const Words* in, float* out) noexcept { Store(out, U32ToFloat(LoadU32(in))); }
inline void Set1U32Op(const Words* in, Words* out) noexcept { StoreU32(out, Set1U32(*in)); }
template <int kBits>
inline void ShiftRightOp(const Words* in, Words* out) noexcept {
  StoreU32(out, ShiftRight<kBits>(LoadU32(in)));
}
template <int kBits>
inline void ShiftLeftOp(const Words* in, Words* out) noexcept {
  StoreU32(out, ShiftLeft<kBits>(LoadU32(in)));
}
inline void ShiftRightByOp(const Words* in, unsigned bits, Words* out) noexcept {
  StoreU32(out, ShiftRightBy(LoadU32(in), bits));
}
inline void AndOp(const Words* a, const Words* b, Words* out) noexcept {
  StoreU32(out, And(LoadU32(a), LoadU32(b)));
}
inline void OrOp(const Words* a, const Words* b, Words* out) noexcept {
  StoreU32(out, Or(LoadU32(a), LoadU32(b)));
}
inline void CountAboveOp(const float* a, const float* bound, const Words* count, Words* out) noexcept {
  StoreU32(out, CountAbove(Load(a), Load(bound), LoadU32(count)));
}
inline void Lookup16Op(const float* table, const Words* index, float* out) noexcept {
  Store(out, Lookup16(Load(table), LoadU32(index)));
}
inline void GatherOp(const float* table, const Words* index, float* out) noexcept {
  Store(out, Gather(table, LoadU32(index)));
}
template <int kStride>
inline void ButterflyOp(const float* in, float* out) noexcept {
  Store(out, Butterfly<kStride>(Load(in)));
}

template <int... kBits>
constexpr CodeOps MakeCodeOps(std::integer_sequence<int, kBits...>) {
  return {.copy = &CopyOp,
          .load_u8 = &LoadU8Op,
          .to_float = &ToFloatOp,
          .set1 = &Set1U32Op,
          .shift_right = {&ShiftRightOp<kBits>...},
          .shift_left = {&ShiftLeftOp<kBits>...},
          .shift_right_by = &ShiftRightByOp,
          .bit_and = &AndOp,
          .bit_or = &OrOp,
          .count_above = &CountAboveOp,
          .lookup16 = &Lookup16Op,
          .gather = &GatherOp,
          .butterfly = {&ButterflyOp<1>, &ButterflyOp<2>, &ButterflyOp<4>, &ButterflyOp<8>}};
}
inline constexpr CodeOps kCodeOps = MakeCodeOps(std::make_integer_sequence<int, 32>());

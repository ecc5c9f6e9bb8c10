// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Each operation of Vec behind plain pointers, for vec_test.cc; included once for each ISA after
// its vec_*-inl.h and vec_math-inl.h.

inline void LoadHalfOp(const std::uint16_t* in, float* out) noexcept { Store(out, LoadHalf(in)); }
inline void StoreHalfOp(const float* in, std::uint16_t* out) noexcept { StoreHalf(out, Load(in)); }
inline void LoadBFloat16Op(const std::uint16_t* in, float* out) noexcept {
  Store(out, LoadBFloat16(in));
}
inline void StoreBFloat16Op(const float* in, std::uint16_t* out) noexcept {
  StoreBFloat16(out, Load(in));
}
inline void LoadInt8Op(const std::int8_t* in, float* out) noexcept { Store(out, LoadInt8(in)); }
inline void LoadNibblesOp(const std::uint8_t* in, float* low, float* high) noexcept {
  Vec l, h;
  LoadNibbles(in, &l, &h);
  Store(low, l);
  Store(high, h);
}
inline void Set1Op(const float* in, float* out) noexcept { Store(out, Set1(*in)); }
inline void AddOp(const float* a, const float* b, float* out) noexcept {
  Store(out, Add(Load(a), Load(b)));
}
inline void SubOp(const float* a, const float* b, float* out) noexcept {
  Store(out, Sub(Load(a), Load(b)));
}
inline void MulOp(const float* a, const float* b, float* out) noexcept {
  Store(out, Mul(Load(a), Load(b)));
}
inline void DivOp(const float* a, const float* b, float* out) noexcept {
  Store(out, Div(Load(a), Load(b)));
}
inline void MaxOp(const float* a, const float* b, float* out) noexcept {
  Store(out, Max(Load(a), Load(b)));
}
inline void FmaOp(const float* a, const float* b, const float* c, float* out) noexcept {
  Store(out, Fma(Load(a), Load(b), Load(c)));
}
inline void SelectLessOp(const float* a, const float* b, const float* x, const float* y,
                         float* out) noexcept {
  Store(out, SelectLess(Load(a), Load(b), Load(x), Load(y)));
}
inline void Exp2Op(const float* in, float* out) noexcept { Store(out, Exp2(Load(in))); }
inline void ReduceAddOp(const float* in, float* out) noexcept { *out = ReduceAdd(Load(in)); }
inline void ReduceMaxOp(const float* in, float* out) noexcept { *out = ReduceMax(Load(in)); }

inline constexpr VecOps kOps = {.load_half = &LoadHalfOp,
                                .store_half = &StoreHalfOp,
                                .load_bfloat16 = &LoadBFloat16Op,
                                .store_bfloat16 = &StoreBFloat16Op,
                                .load_int8 = &LoadInt8Op,
                                .load_nibbles = &LoadNibblesOp,
                                .set1 = &Set1Op,
                                .add = &AddOp,
                                .sub = &SubOp,
                                .mul = &MulOp,
                                .div = &DivOp,
                                .max = &MaxOp,
                                .fma = &FmaOp,
                                .select_less = &SelectLessOp,
                                .exp2 = &Exp2Op,
                                .reduce_add = &ReduceAddOp,
                                .reduce_max = &ReduceMaxOp};

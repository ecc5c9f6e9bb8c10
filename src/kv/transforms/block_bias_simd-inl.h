// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Body of the block bias on Vec; included inside each ISA's namespace after a vec_*-inl.h. One
// chain of fused multiply-adds over the pairs and one reduction for each block: the same bits on
// every ISA.

// Products of one row, turned by 64 * high blocks: re and im [stride].
inline void TurnProducts(const RopePhases& phases, std::size_t high, const float* products,
                         float* re, float* im) {
  const std::size_t stride = phases.stride();
  for (std::size_t i = 0; i < stride; i += 16) {
    const Vec x = Load(products + i), y = Load(products + stride + i);
    const Vec cosine = Load(phases.high_cos(high) + i), sine = Load(phases.high_sin(high) + i);
    Store(re + i, Sub(Mul(x, cosine), Mul(y, sine)));
    Store(im + i, Fma(x, sine, Mul(y, cosine)));
  }
}

inline void BlockBias(const BlockBiasArgs& a) noexcept {
  for (std::size_t row = 0; row < a.n_rows; ++row) {
    const float* products = a.products + row * a.product_floats;
    float* bias = a.bias + row * a.n_blocks;
    const std::size_t stride = a.phases == nullptr ? 0 : a.phases->stride();
    const float still = products[2 * stride];
    if (a.phases == nullptr) {
      for (std::size_t b = 0; b < a.n_blocks; ++b) bias[b] = still;
      continue;
    }
    float re[RopePhases::kMaxStride], im[RopePhases::kMaxStride];
    for (std::size_t b = 0; b < a.n_blocks; ++b) {
      const std::size_t low = (a.first + b) % RopePhases::kLow;
      if (b == 0 || low == 0)
        TurnProducts(*a.phases, (a.first + b) / RopePhases::kLow, products, re, im);
      Vec sum = Set1(0.0f);
      for (std::size_t i = 0; i < stride; i += 16) {
        sum = Fma(Load(re + i), Load(a.phases->low_cos(low) + i), sum);
        sum = Fma(Sub(Set1(0.0f), Load(im + i)), Load(a.phases->low_sin(low) + i), sum);
      }
      bias[b] = still + ReduceAdd(sum);
    }
  }
}

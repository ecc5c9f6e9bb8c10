// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Body of the attention kernels on Vec; contracts in attention_kernels.h.

inline float Exp2Scalar(float x) {
  float lanes[16];
  Store(lanes, Exp2(Set1(x)));
  return lanes[0];
}

// The largest of a block's 64 scores.
inline float BlockMax(const float* scores) {
  return ReduceMax(Max(Max(Load(scores), Load(scores + 16)), Max(Load(scores + 32), Load(scores + 48))));
}

// Scores of a block to weights 2^(score - shift), in place. Returns their sum.
inline float BlockWeights(float* scores, float shift) {
  const Vec offset = Set1(shift);
  Vec s[4];
  for (int i = 0; i < 4; ++i) {
    s[i] = Exp2NonPositive(Sub(Load(scores + i * 16), offset));
    Store(scores + i * 16, s[i]);
  }
  return ReduceAdd(Add(Add(s[0], s[1]), Add(s[2], s[3])));
}

inline void SoftmaxBlock(float* scores, const float* bias, float* max, float* sum, float* rescale) {
  const float offset = bias == nullptr ? 0.0f : *bias;
  const float block_max = BlockMax(scores) + offset;
  const float new_max = block_max > *max ? block_max : *max;
  if (new_max == -INFINITY) {
    for (int i = 0; i < 4; ++i) Store(scores + i * 16, Set1(0.0f));
    *rescale = 1.0f;
    return;
  }
  const float factor = new_max == *max ? 1.0f : Exp2Scalar(*max - new_max);
  *sum = *sum * factor + BlockWeights(scores, new_max - offset);
  *rescale = factor;
  *max = new_max;
}

inline void Softmax(const SoftmaxArgs& a) noexcept {
  if (a.ahead != nullptr) a.ahead->Begin(ReadAhead::Phase::kSoftmax, a.n_rows * a.n_blocks);
  for (std::size_t r = 0; r < a.n_rows; ++r) {
    for (std::size_t b = 0; b < a.n_blocks; ++b) {
      if (a.ahead != nullptr) a.ahead->Step();
      SoftmaxBlock(a.scores + r * a.stride + b * 64,
                   a.bias == nullptr ? nullptr : a.bias + r * a.bias_stride + b, a.max + r, a.sum + r,
                   a.rescale + r * a.rescale_stride + b);
      if (a.block_max != nullptr) a.block_max[r * a.block_max_stride + b] = a.max[r];
    }
  }
}

inline void AttendRows(const AttendRowsArgs& a) noexcept {
  for (std::size_t q = 0; q < a.n_query; ++q) {
    const float* query = a.query + q * a.head_dim;
    float scores[64];
    for (float& score : scores) score = -INFINITY;
    for (std::size_t row = 0; row < a.n_rows; ++row) {
      Vec acc = Set1(0.0f);
      for (std::size_t i = 0; i < a.head_dim; i += 16) {
        acc = Fma(Load(query + i), Load(a.keys + row * a.head_dim + i), acc);
      }
      scores[row] = ReduceAdd(acc);
    }
    float rescale;
    SoftmaxBlock(scores, nullptr, a.max + q, a.sum + q, &rescale);
    for (std::size_t row = 0; a.weights != nullptr && row < a.n_rows; ++row) {
      a.weights[q * a.weights_stride + row] = scores[row];
    }
    for (std::size_t i = 0; i < a.head_dim; i += 16) {
      float* out = a.output + q * a.head_dim + i;
      Vec acc = Mul(Load(out), Set1(rescale));
      for (std::size_t row = 0; row < a.n_rows; ++row) {
        acc = Fma(Load(a.values + row * a.head_dim + i), Set1(scores[row]), acc);
      }
      Store(out, acc);
    }
  }
}

inline void MassFactors(float* block_max, std::size_t n_blocks, float max, float sum) noexcept {
  for (std::size_t b = 0; b < n_blocks; b += 16) {
    const Vec scale = Exp2NonPositive(Sub(Load(block_max + b), Set1(max)));
    Store(block_max + b, Div(scale, Set1(sum)));
  }
}

inline void AddMass(const AddMassArgs& a) noexcept {
  for (std::size_t first = 0; first < a.n_tokens; first += 64) {
    Vec total[4] = {Set1(0.0f), Set1(0.0f), Set1(0.0f), Set1(0.0f)};
    for (std::size_t r = 0; r < a.n_rows; ++r) {
      const float* weights = a.weights + r * a.weights_stride + first;
      const Vec factor = Set1(a.factors[r * a.factors_stride + first / 64]);
      for (int i = 0; i < 4; ++i) total[i] = Fma(Load(weights + i * 16), factor, total[i]);
    }
    float* mass = a.mass + first;
    if (a.n_tokens - first >= 64) {
      for (int i = 0; i < 4; ++i) Store(mass + i * 16, Add(Load(mass + i * 16), total[i]));
    } else {
      float last[64];
      for (int i = 0; i < 4; ++i) Store(last + i * 16, total[i]);
      for (std::size_t t = 0; t < a.n_tokens - first; ++t) mass[t] += last[t];
    }
  }
}

inline void MergeRow(const MergeArgs& a, std::size_t r) {
  const float* part = a.part_output + r * a.head_dim;
  float* out = a.output + r * a.head_dim;
  const float new_max = a.part_max[r] > a.max[r] ? a.part_max[r] : a.max[r];
  const float part_factor = a.part_max[r] == new_max ? 1.0f : Exp2Scalar(a.part_max[r] - new_max);
  const float out_factor = a.max[r] == new_max ? 1.0f : Exp2Scalar(a.max[r] - new_max);
  for (std::size_t i = 0; i < a.head_dim; i += 16) {
    const Vec scaled = Mul(Load(out + i), Set1(out_factor));
    Store(out + i, Fma(Load(part + i), Set1(part_factor), scaled));
  }
  a.sum[r] = a.sum[r] * out_factor + a.part_sum[r] * part_factor;
  a.max[r] = new_max;
}

inline void Merge(const MergeArgs& a) noexcept {
  for (std::size_t r = 0; r < a.n_rows; ++r) {
    if (a.part_max[r] == -INFINITY) continue;
    if (a.max[r] == -INFINITY) {
      for (std::size_t i = 0; i < a.head_dim; i += 16) {
        Store(a.output + r * a.head_dim + i, Load(a.part_output + r * a.head_dim + i));
      }
      a.max[r] = a.part_max[r];
      a.sum[r] = a.part_sum[r];
    } else {
      MergeRow(a, r);
    }
  }
}

inline void Normalize(float* output, const float* sum, std::size_t n_rows,
                      std::size_t head_dim) noexcept {
  for (std::size_t r = 0; r < n_rows; ++r) {
    for (std::size_t i = 0; i < head_dim; i += 16) {
      float* p = output + r * head_dim + i;
      Store(p, Div(Load(p), Set1(sum[r])));
    }
  }
}

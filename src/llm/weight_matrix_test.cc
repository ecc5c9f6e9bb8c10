// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Repacked weights against the independent decoders of the file's types.
#include "llm/weight_matrix.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/support/guard_pages.h"
#include "tests/support/guarded_array.h"
#include "tests/support/random_matrix.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

using test::RandomMatrix;

struct Shape {
  std::size_t n_rows, n_cols;
};

// Rows that do not fill a panel, and some that do.
constexpr Shape kShapes[] = {{1, 32},  {15, 64},  {16, 32}, {17, 96},
                             {31, 32}, {32, 160}, {33, 64}, {100, 32}};
// Plain types have no blocks.
constexpr Shape kPlainShapes[] = {{1, 1}, {3, 33}, {17, 50}, {40, 7}};

// What repacking adds to a block: 16 scales of 6 bits in 12 bytes become 16 bytes (2.3 to 3.6 %).
std::size_t ExtraBytes(WeightType type) {
  const bool packed_scales =
      type == WeightType::kQ3_K || type == WeightType::kQ4_K || type == WeightType::kQ5_K;
  return packed_scales ? 4 : 0;
}

class WeightMatrixTest : public testing::TestWithParam<WeightType> {
 protected:
  std::vector<Shape> Shapes() const {
    std::vector<Shape> shapes(std::begin(kShapes), std::end(kShapes));
    for (Shape& shape : shapes) shape.n_cols = test::WholeBlocks(GetParam(), shape.n_cols);
    // More than one block of every type.
    shapes.push_back({18, 3 * test::WholeBlocks(GetParam(), 32)});
    if (InfoOf(GetParam()).block_values == 1) {
      shapes.insert(shapes.end(), std::begin(kPlainShapes), std::end(kPlainShapes));
    }
    return shapes;
  }
};

TEST_P(WeightMatrixTest, RowsHaveTheValuesOfTheFile) {
  const test::GuardPages guard;
  std::uint64_t seed = test::TestSeed();
  for (const std::size_t n_threads : {1, 3}) {
    ThreadPool threads(n_threads);
    for (const Shape shape : Shapes()) {
      const RandomMatrix source(GetParam(), shape.n_rows, shape.n_cols, ++seed);
      const WeightMatrix matrix = WeightMatrix::Load(source.file(), source.tensor(), threads);
      EXPECT_EQ(matrix.type(), GetParam());
      ASSERT_EQ(matrix.n_rows(), shape.n_rows);
      ASSERT_EQ(matrix.n_cols(), shape.n_cols);
      test::GuardedArray<float> row(shape.n_cols, test::Edge::kEnd);
      for (std::size_t r = 0; r < shape.n_rows; ++r) {
        matrix.Row(r, row.data());
        for (std::size_t c = 0; c < shape.n_cols; ++c) {
          ASSERT_EQ(row[c], source.value(r, c))
              << shape.n_rows << " x " << shape.n_cols << ": weight (" << r << ", " << c << ")";
        }
      }
    }
  }
}

TEST_P(WeightMatrixTest, BytesAreWholePanels) {
  ThreadPool threads(1);
  const WeightTypeInfo& info = InfoOf(GetParam());
  for (const Shape shape : Shapes()) {
    const RandomMatrix source(GetParam(), shape.n_rows, shape.n_cols, test::TestSeed());
    const std::uint64_t before = MemoryCountOf(MemoryTag::kWeights).current_bytes;
    const WeightMatrix matrix = WeightMatrix::Load(source.file(), source.tensor(), threads);
    const std::uint64_t row_bytes =
        shape.n_cols / info.block_values * (info.block_bytes + ExtraBytes(GetParam()));
    EXPECT_EQ(matrix.bytes(), (shape.n_rows + 31) / 32 * 32 * row_bytes)
        << "repacking costs no more than that";
    EXPECT_EQ(matrix.n_panels(), (shape.n_rows + 31) / 32);
    EXPECT_EQ(matrix.panel_bytes(), 32 * row_bytes);
    EXPECT_EQ(PanelBytes(GetParam(), shape.n_cols), matrix.panel_bytes());
    EXPECT_EQ(MemoryCountOf(MemoryTag::kWeights).current_bytes - before,
              (matrix.bytes() + 63) / 64 * 64);
  }
}

TEST(WeightMatrix, AVectorIsAMatrixOfOneRow) {
  test::GgufWriter writer;
  const std::vector<double> values = {1, -2, 0.5};
  writer.AddTensor("vector", 0, {3}, test::EncodeWeights(WeightType::kF32, values));
  const std::vector<std::byte> bytes = writer.Build();
  const GgufFile file = GgufFile::FromBytes(bytes, "vector");
  ThreadPool threads(1);
  const WeightMatrix matrix = WeightMatrix::Load(file, *file.FindTensor("vector"), threads);
  ASSERT_EQ(matrix.n_rows(), 1u);
  ASSERT_EQ(matrix.n_cols(), 3u);
  float row[3];
  matrix.Row(0, row);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(row[i], static_cast<float>(values[i]));
}

std::vector<WeightType> AllTypes() {
  std::vector<WeightType> types;
  for (const WeightTypeInfo& info : WeightTypes()) types.push_back(info.type);
  return types;
}

INSTANTIATE_TEST_SUITE_P(Types, WeightMatrixTest, testing::ValuesIn(AllTypes()),
                         [](const auto& info) { return std::string(InfoOf(info.param).name); });

}  // namespace
}  // namespace kvant

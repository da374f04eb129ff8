// SPDX-License-Identifier: Apache-2.0
// Tensors of libtorch's as the observer sees them.
#include "shim/observe/torch/torch_tensor.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "shim/observe/torch/alignment.h"
#include "shim/observe/torch/storage_data.h"

namespace nanwatch {
namespace {

using wire::Unchecked;

class TorchTensorTest : public testing::Test {
 protected:
  Readable Describe(const at::Tensor& tensor) { return DescribeTensor(tensor, &plain_, &reason_); }
  // What is said of a tensor that cannot be read.
  Unchecked WhyNot(const at::Tensor& tensor) {
    EXPECT_EQ(Describe(tensor), Readable::kNo);
    return reason_;
  }
  bool IsDensePlain(const at::Tensor& tensor) { return ReadDense(tensor, &dense_); }

  // The same memory, said to lie on cuda:1.
  static at::Tensor OnGpu(const at::Tensor& tensor, ptrdiff_t moved_by = 0) {
    auto* memory = static_cast<char*>(tensor.storage().mutable_data()) + moved_by;
    c10::Storage storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(),
                         c10::DataPtr(memory, c10::Device(c10::kCUDA, 1)));
    auto impl = c10::make_intrusive<c10::TensorImpl>(
        std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA), tensor.dtype());
    impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    return at::Tensor(std::move(impl));
  }

  PlainTensor plain_{};
  DensePlain dense_{};
  Unchecked reason_ = Unchecked::kOpaque;
};

TEST_F(TorchTensorTest, OnlyTypesWithValuesThatCanBeBadHaveAnElementType) {
  for (const at::ScalarType type : {at::kByte, at::kInt, at::kLong, at::kBool, at::kQInt8}) {
    EXPECT_EQ(ElementTypeOf(type), wire::ElementType::kNone) << type;
  }
  EXPECT_EQ(ElementTypeOf(at::ScalarType::Undefined), wire::ElementType::kNone);
  EXPECT_EQ(ElementTypeOf(at::ScalarType::NumOptions), wire::ElementType::kNone);
  for (const at::ScalarType type :
       {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kComplexDouble, at::kComplexFloat,
        at::kComplexHalf, at::kFloat8_e5m2, at::kFloat8_e4m3fn}) {
    EXPECT_EQ(ElementBytes(ElementTypeOf(type)), c10::elementSize(type)) << type;
  }
}

TEST_F(TorchTensorTest, APartOfATensorHasItsPlaceInTheStorage) {
  const at::Tensor whole = at::zeros({10, 4});
  const at::Tensor rows = whole.slice(0, 3, 5);
  ASSERT_EQ(Describe(rows), Readable::kYes);
  EXPECT_EQ(plain_.byte_begin, 3u * 4 * 4);
  EXPECT_EQ(plain_.byte_end, 5u * 4 * 4);
  EXPECT_EQ(plain_.view.data, rows.data_ptr());
  EXPECT_EQ(plain_.view.numel, 8);
  EXPECT_EQ(plain_.storage, whole.storage().unsafeGetStorageImpl());
  EXPECT_EQ(plain_.impl, rows.unsafeGetTensorImpl());
  EXPECT_EQ(plain_.gpu, -1);
  EXPECT_TRUE(plain_.IsDense());
}

TEST_F(TorchTensorTest, ColumnsReachFromTheirFirstToTheirLastElementAndHaveGaps) {
  const at::Tensor columns = at::zeros({10, 4}).slice(1, 1, 3);
  ASSERT_EQ(Describe(columns), Readable::kYes);
  EXPECT_EQ(plain_.byte_begin, 4u);
  EXPECT_EQ(plain_.byte_end, (9u * 4 + 3) * 4);
  EXPECT_FALSE(plain_.IsDense());
  EXPECT_FALSE(IsDensePlain(columns));
}

TEST_F(TorchTensorTest, ATransposedTensorReachesAsFarAsTheTensorItself) {
  const at::Tensor tensor = at::zeros({10, 4});
  ASSERT_EQ(Describe(tensor.t()), Readable::kYes);
  EXPECT_EQ(plain_.byte_begin, 0u);
  EXPECT_EQ(plain_.byte_end, 160u);
  EXPECT_TRUE(plain_.IsDense());
  EXPECT_FALSE(IsDensePlain(tensor.t())) << "not in the order of its indices";
}

TEST_F(TorchTensorTest, AnExpandedTensorReachesOneElement) {
  ASSERT_EQ(Describe(at::zeros({1}).expand({1000})), Readable::kYes);
  EXPECT_EQ(plain_.byte_end - plain_.byte_begin, 4u);
  EXPECT_EQ(plain_.view.numel, 1000);
}

TEST_F(TorchTensorTest, ANumberHasNoDimensions) {
  const at::Tensor number = at::zeros({}, at::kDouble);
  ASSERT_EQ(Describe(number), Readable::kYes);
  EXPECT_EQ(plain_.view.ndim, 0);
  EXPECT_EQ(plain_.view.numel, 1);
  EXPECT_EQ(plain_.byte_end, 8u);
  ASSERT_TRUE(IsDensePlain(number));
  EXPECT_EQ(dense_.count, 1u);
}

TEST_F(TorchTensorTest, ThereIsNothingInWhatHasNoElementsOrOnlyIntegers) {
  EXPECT_EQ(Describe(at::Tensor()), Readable::kNothing);
  EXPECT_EQ(Describe(at::zeros({0})), Readable::kNothing);
  EXPECT_EQ(Describe(at::zeros({3, 0, 2})), Readable::kNothing);
  EXPECT_EQ(Describe(at::zeros({3}, at::kLong)), Readable::kNothing);
  EXPECT_EQ(Describe(at::empty({3}, at::TensorOptions(at::kMeta).dtype(at::kLong))),
            Readable::kNothing);
  for (const at::Tensor& tensor : {at::Tensor(), at::zeros({0}), at::zeros({3}, at::kLong)}) {
    EXPECT_FALSE(IsDensePlain(tensor));
  }
}

TEST_F(TorchTensorTest, ATensorWithoutMemoryCannotBeRead) {
  EXPECT_EQ(WhyNot(at::empty({3}, at::kMeta)), Unchecked::kMeta);
  EXPECT_FALSE(IsDensePlain(at::empty({3}, at::kMeta)));
}

// FSDP gives the memory of a parameter back under its tensor.
TEST_F(TorchTensorTest, ATensorWhoseStorageHasShrunkCannotBeRead) {
  const at::Tensor tensor = at::zeros({16});
  const at::Tensor half = tensor.slice(0, 0, 8);
  tensor.storage().unsafeGetStorageImpl()->set_nbytes(63);
  EXPECT_EQ(WhyNot(tensor), Unchecked::kMeta);
  EXPECT_FALSE(IsDensePlain(tensor));
  EXPECT_FALSE(IsAllZero(tensor, 100));
  EXPECT_EQ(Describe(half), Readable::kYes) << "what is left may be read";
  EXPECT_TRUE(IsDensePlain(half));
  tensor.storage().unsafeGetStorageImpl()->set_nbytes(64);
  EXPECT_EQ(Describe(tensor), Readable::kYes);
}

TEST_F(TorchTensorTest, OneRunOfMemoryOnAGpuIsDescribedTheShortWayAsTheLongOne) {
  const at::Tensor images =
      at::zeros({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast).slice(0, 1, 2);
  for (const at::Tensor& tensor : {at::zeros({10, 4}), at::zeros({10, 4}).slice(0, 3, 5), images,
                                   at::zeros({4, 6}).t(), at::zeros({3}, at::kBFloat16)}) {
    const at::Tensor there = OnGpu(tensor);
    PlainTensor quick{};
    ASSERT_TRUE(ReadDenseOnGpu(there, &quick)) << tensor.sizes();
    ASSERT_EQ(Describe(there), Readable::kYes);
    EXPECT_EQ(quick.impl, plain_.impl);
    EXPECT_EQ(quick.storage, plain_.storage);
    EXPECT_EQ(quick.byte_begin, plain_.byte_begin);
    EXPECT_EQ(quick.byte_end, plain_.byte_end);
    EXPECT_EQ(quick.gpu, 1);
    EXPECT_EQ(quick.view.data, plain_.view.data);
    EXPECT_EQ(quick.view.type, plain_.view.type);
    EXPECT_EQ(quick.view.numel, plain_.view.numel);
    EXPECT_EQ(quick.view.ndim, plain_.view.ndim);
    EXPECT_EQ(quick.view.sizes, plain_.view.sizes);
    EXPECT_EQ(quick.view.strides, plain_.view.strides);
    EXPECT_FALSE(IsDensePlain(there)) << "the CPU cannot read it";
  }
}

TEST_F(TorchTensorTest, TheShortWayOfAGpuTakesNothingElse) {
  const at::Tensor whole = at::zeros({10, 4});
  PlainTensor plain{};
  EXPECT_FALSE(ReadDenseOnGpu(whole, &plain)) << "on the CPU";
  EXPECT_FALSE(ReadDenseOnGpu(at::Tensor(), &plain)) << "undefined";
  EXPECT_FALSE(ReadDenseOnGpu(OnGpu(whole.slice(1, 0, 2)), &plain)) << "with gaps";
  EXPECT_FALSE(ReadDenseOnGpu(OnGpu(at::zeros({4}, at::kLong)), &plain));
  EXPECT_FALSE(ReadDenseOnGpu(OnGpu(whole.slice(0, 3, 3)), &plain)) << "empty";
  EXPECT_FALSE(ReadDenseOnGpu(OnGpu(whole, /*moved_by=*/2), &plain)) << "misaligned";
  const at::Tensor shrunk = OnGpu(whole);
  shrunk.storage().unsafeGetStorageImpl()->set_nbytes(100);
  EXPECT_FALSE(ReadDenseOnGpu(shrunk, &plain)) << "its storage was resized under it";
}

// As torch.compile leaves the outputs of a CUDA graph that has been replayed since.
TEST_F(TorchTensorTest, ATensorWhoseMemoryMayNotBeTouchedCannotBeReadAndThrowsNothing) {
  const at::Tensor tensor = at::zeros({4});
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  ASSERT_NE(DataOf(*storage), nullptr);
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_("overwritten by a later run");
  EXPECT_EQ(DataOf(*storage), nullptr);
  EXPECT_EQ(WhyNot(tensor), Unchecked::kMeta);
  EXPECT_FALSE(IsDensePlain(tensor));
  EXPECT_FALSE(IsAllZero(tensor, 100));
}

TEST_F(TorchTensorTest, ASparseTensorIsReadByItsValues) {
  const at::Tensor indices = at::zeros({1, 2}, at::kLong);
  const at::Tensor values = at::ones({2, 3});
  const at::Tensor sparse = at::sparse_coo_tensor(indices, values, {100, 3});
  ASSERT_EQ(Describe(sparse), Readable::kYes);
  EXPECT_EQ(plain_.view.numel, 6);
  EXPECT_EQ(plain_.storage, sparse._values().storage().unsafeGetStorageImpl());
  EXPECT_FALSE(IsDensePlain(sparse));
  EXPECT_EQ(Describe(at::sparse_coo_tensor({100, 3}, at::TensorOptions(at::kFloat))),
            Readable::kNothing)
      << "no values";
}

TEST_F(TorchTensorTest, OtherLayoutsSayWhyTheyAreNotRead) {
  EXPECT_EQ(WhyNot(at::ones({3, 3}).to_sparse_csr()), Unchecked::kSparse);
  EXPECT_EQ(WhyNot(at::quantize_per_tensor(at::ones({4}), 0.1, 0, at::kQInt8)),
            Unchecked::kQuantized);
  EXPECT_FALSE(IsAllZero(at::zeros({3, 3}).to_sparse_csr(), 100));
}

TEST_F(TorchTensorTest, ConjugatedAndNegatedViewsAreReadAsTheyLie) {
  const at::Tensor tensor = at::ones({4}, at::kComplexFloat);
  ASSERT_EQ(Describe(at::conj(tensor)), Readable::kYes);
  EXPECT_EQ(plain_.view.type, wire::ElementType::kComplex64);
  EXPECT_EQ(plain_.view.data, tensor.data_ptr());
}

TEST_F(TorchTensorTest, WhatIsReadQuicklyIsReadTheSameAtLength) {
  const at::Tensor whole = at::zeros({6, 5}, at::kBFloat16);
  for (const at::Tensor& tensor : {whole, whole.slice(0, 2, 4), whole.select(0, 5)}) {
    ASSERT_TRUE(IsDensePlain(tensor));
    ASSERT_EQ(ReadTensor(tensor, &plain_, &reason_), Readable::kYes);
    EXPECT_EQ(dense_.data, plain_.view.data);
    EXPECT_EQ(static_cast<int64_t>(dense_.count), plain_.view.numel);
    EXPECT_EQ(dense_.bytes, plain_.byte_end - plain_.byte_begin);
    EXPECT_EQ(dense_.type, plain_.view.type);
  }
}

TEST_F(TorchTensorTest, NoReferenceToATensorIsTaken) {
  const at::Tensor tensor = at::zeros({4});
  ASSERT_EQ(Describe(tensor), Readable::kYes);
  ASSERT_TRUE(IsDensePlain(tensor));
  EXPECT_EQ(tensor.use_count(), 1u);
  EXPECT_EQ(tensor.storage().use_count(), 1u);
}

TEST_F(TorchTensorTest, ZeroOfEitherSignIsZero) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    EXPECT_TRUE(IsAllZero(at::zeros({7}, type), 7)) << type;
    EXPECT_TRUE(IsAllZero(at::zeros({7}, type).neg(), 7)) << type;
  }
  EXPECT_TRUE(IsAllZero(at::zeros({7}, at::kLong), 7));
  EXPECT_TRUE(IsAllZero(at::zeros({7}, at::kBool), 7));
}

TEST_F(TorchTensorTest, NothingElseIsZero) {
  at::Tensor tensor = at::zeros({9});
  tensor[8] = std::numeric_limits<float>::denorm_min();
  EXPECT_FALSE(IsAllZero(tensor, 9));
  tensor[8] = std::nanf("");
  EXPECT_FALSE(IsAllZero(tensor, 9));
  EXPECT_FALSE(IsAllZero(at::full({1}, -128, at::kChar), 9)) << "a sign's bit is all it has";
  EXPECT_FALSE(IsAllZero(at::full({1}, -32768, at::kShort), 9));
  EXPECT_FALSE(IsAllZero(at::full({1}, 128, at::kByte), 9));
}

TEST_F(TorchTensorTest, IsNotCalledZeroWhereItIsTooLargeOrEmptyOrHasGaps) {
  EXPECT_FALSE(IsAllZero(at::zeros({8}), 7));
  EXPECT_FALSE(IsAllZero(at::zeros({0}), 7));
  EXPECT_FALSE(IsAllZero(at::Tensor(), 7));
  EXPECT_FALSE(IsAllZero(at::empty({2}, at::kMeta), 7));
  EXPECT_FALSE(IsAllZero(at::zeros({4, 4}).slice(1, 0, 1), 7));
  EXPECT_TRUE(IsAllZero(at::zeros({2, 3}).t(), 7));
}

TEST_F(TorchTensorTest, APartOfATensorIsZeroByItsOwnElements) {
  const at::Tensor tensor = at::ones({6});
  tensor.slice(0, 2, 4).zero_();
  EXPECT_TRUE(IsAllZero(tensor.slice(0, 2, 4), 9));
  EXPECT_FALSE(IsAllZero(tensor.slice(0, 1, 4), 9));
  EXPECT_FALSE(IsAllZero(tensor.slice(0, 2, 5), 9));
}

TEST(Alignment, IsThatOfThePartsOfAnElement) {
  alignas(16) static char memory[32];
  EXPECT_FALSE(IsMisaligned(memory + 4, wire::ElementType::kComplex64)) << "two floats";
  EXPECT_TRUE(IsMisaligned(memory + 4, wire::ElementType::kComplex128));
  EXPECT_TRUE(IsMisaligned(memory + 2, wire::ElementType::kFloat32));
  EXPECT_FALSE(IsMisaligned(memory + 2, wire::ElementType::kBFloat16));
  EXPECT_TRUE(IsMisaligned(memory + 1, wire::ElementType::kComplex32));
  EXPECT_FALSE(IsMisaligned(memory + 1, wire::ElementType::kFloat8E5M2));
}

}  // namespace
}  // namespace nanwatch

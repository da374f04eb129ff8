// SPDX-License-Identifier: Apache-2.0
// Names of parameters and buffers. The Python objects are made here: a head, and the tensor behind
// it, as torch.Tensor has it.
#include "shim/observe/python/names/python_names.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "shim/observe/python/api/storage_hold.h"

namespace nanwatch {
namespace {

// A torch.Tensor: its object and its tensor know each other.
class TensorObject {
 public:
  explicit TensorObject(at::Tensor tensor) : tensor_(std::move(tensor)) {
    words_[2] = reinterpret_cast<uintptr_t>(tensor_.unsafeGetTensorImpl());
    impl()->pyobj_slot()->store_pyobj(reinterpret_cast<PyObject*>(words_));
  }
  ~TensorObject() { impl()->pyobj_slot()->clear(); }
  TensorObject(const TensorObject&) = delete;
  TensorObject& operator=(const TensorObject&) = delete;

  PyObj* object() { return reinterpret_cast<PyObj*>(words_); }
  c10::TensorImpl* impl() { return tensor_.unsafeGetTensorImpl(); }
  c10::StorageImpl* storage() { return tensor_.storage().unsafeGetStorageImpl(); }
  at::Tensor& tensor() { return tensor_; }

 private:
  alignas(16) uintptr_t words_[8] = {};
  at::Tensor tensor_;
};

class PythonNamesTest : public testing::Test {
 protected:
  PythonNamesTest() {
    root_.root = "Net#0";
    root_.root_layer = &root_;
    encoder_.root = "Net#0";
    encoder_.path = "encoder";
    encoder_.root_layer = &root_;
    other_root_.root = "Net#1";
    other_root_.root_layer = &other_root_;
  }
  void Add(TensorObject& object, const char* leaf, const Layer& layer,
           NamedTensorKind kind = NamedTensorKind::kParameter) {
    const at::TensorBase* held = names_.TensorOf(object.object());
    if (held != nullptr) names_.Add(&layer, leaf, kind, *held, *held);
  }
  std::string NameOf(TensorObject& object) {
    const NamedTensor* named = names_.FindByImpl(object.impl());
    return named == nullptr ? "" : named->name;
  }
  std::vector<std::string> All() {
    std::vector<std::string> all;
    names_.ForEach([&all](const NamedTensor& named) { all.emplace_back(named.name); });
    return all;
  }

  Layer root_, encoder_, other_root_;
  PythonNames names_;
};

TEST_F(PythonNamesTest, NameWhatTakesThePlaceOfAnotherModuleOrOfABuffer) {
  TensorObject old_weight(at::zeros({4})), weight(at::ones({4})), buffer(at::ones({4}));
  Layer other = encoder_;  // of another class: model.encoder = Other()
  Add(old_weight, "weight", encoder_);
  const NamedTensor* named = names_.FindByImpl(old_weight.impl());
  names_.ForgetRoot(&root_);
  Add(weight, "weight", other);
  EXPECT_EQ(NameOf(weight), "encoder.weight");
  EXPECT_EQ(names_.FindByStorage(weight.storage())->layer, &other);
  EXPECT_EQ(All().size(), 1u);
  names_.ForgetRoot(&root_);
  Add(buffer, "weight", other, NamedTensorKind::kBuffer);
  EXPECT_EQ(names_.FindByImpl(buffer.impl())->kind, NamedTensorKind::kBuffer);
  names_.ForgetRoot(&root_);
  Add(weight, "weight", encoder_);
  EXPECT_EQ(names_.FindByImpl(weight.impl()), named) << "back again, it is the same one";
}

// A DTensor, and the shard that this rank has of it.
TEST_F(PythonNamesTest, NameADistributedTensorAndReadWhatThisRankHasOfIt) {
  TensorObject whole(at::zeros({4, 3}));
  TensorObject shard(at::ones({2, 3}));
  names_.Add(&encoder_, "weight", NamedTensorKind::kParameter, whole.tensor(), shard.tensor());
  const NamedTensor* named = names_.FindByImpl(whole.impl());
  ASSERT_NE(named, nullptr);
  EXPECT_STREQ(named->name, "encoder.weight");
  EXPECT_EQ(names_.FindByStorage(shard.storage()), named);
  EXPECT_EQ(names_.FindByStorage(whole.storage()), nullptr);
  EXPECT_EQ(names_.SeeAgain(whole.impl()), named);
  const std::optional<NamedTensorView> view = names_.Read(*named);
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(view->numel, 6);
  EXPECT_EQ(static_cast<const float*>(view->data)[5], 1);
}

TEST_F(PythonNamesTest, NameATensorByItsPlaceInTheModel) {
  TensorObject weight(at::zeros({2, 3}));
  TensorObject bias(at::zeros({3}));
  Add(weight, "weight", encoder_);
  Add(bias, "bias", root_);
  EXPECT_EQ(NameOf(weight), "encoder.weight");
  EXPECT_EQ(NameOf(bias), "bias") << "of the model itself";
  const NamedTensor* named = names_.FindByImpl(weight.impl());
  EXPECT_EQ(named->layer, &encoder_);
  EXPECT_EQ(named->kind, NamedTensorKind::kParameter);
  EXPECT_EQ(names_.FindByStorage(weight.storage()), named);
  EXPECT_EQ(names_.FindByImpl(weight.impl(), weight.storage()), named);
  EXPECT_EQ(names_.FindByImpl(weight.impl(), bias.storage()), nullptr);
}

TEST_F(PythonNamesTest, KnowNothingOfATensorThatWasNotAdded) {
  TensorObject weight(at::zeros({2}));
  EXPECT_EQ(NameOf(weight), "");
  EXPECT_EQ(names_.FindByStorage(weight.storage()), nullptr);
  EXPECT_TRUE(All().empty());
}

TEST_F(PythonNamesTest, ASharedParameterKeepsItsFirstNameInEachModel) {
  TensorObject shared(at::zeros({2}));
  Add(shared, "weight", encoder_);
  Add(shared, "tied", root_);
  EXPECT_EQ(NameOf(shared), "encoder.weight");
  EXPECT_EQ(All(), std::vector<std::string>{"encoder.weight"});
  Add(shared, "tied", other_root_);
  EXPECT_EQ(All().size(), 2u) << "another model has a name of its own for it";
}

// The tensor is gone, and another has its address.
TEST_F(PythonNamesTest, ATensorThatHasOnlyTheAddressOfAKnownOneHasNoName) {
  TensorObject weight(at::zeros({2}));
  Add(weight, "weight", encoder_);
  weight.impl()->pyobj_slot()->clear();
  EXPECT_EQ(NameOf(weight), "encoder.weight") << "the storage tells";
  const at::Tensor elsewhere = at::zeros({2});
  weight.impl()->set_storage_keep_dtype(elsewhere.storage());
  EXPECT_EQ(NameOf(weight), "");
}

TEST_F(PythonNamesTest, AParameterThatIsReplacedHandsItsNameOn) {
  TensorObject old_weight(at::zeros({2}));
  TensorObject weight(at::zeros({2}));
  Add(old_weight, "weight", encoder_);
  const NamedTensor* named = names_.FindByImpl(old_weight.impl());
  Add(weight, "weight", encoder_);
  EXPECT_EQ(NameOf(old_weight), "");
  EXPECT_EQ(names_.FindByImpl(weight.impl()), named) << "whoever has kept it sees the new one";
  EXPECT_EQ(names_.FindByStorage(old_weight.storage()), nullptr);
  EXPECT_EQ(All().size(), 1u);
}

TEST_F(PythonNamesTest, ATensorIsReadWhileItsMemoryLives) {
  TensorObject weight(at::zeros({10, 4}).slice(0, 2, 4));
  Add(weight, "weight", encoder_);
  const NamedTensor& named = *names_.FindByImpl(weight.impl());
  const auto view = names_.Read(named);
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(view->data, weight.tensor().data_ptr());
  EXPECT_EQ(view->numel, 8);
  EXPECT_EQ(view->dims, 2);
  EXPECT_EQ(view->sizes[0], 2);
  EXPECT_EQ(view->sizes[1], 4);
  EXPECT_TRUE(view->dense);
}

TEST_F(PythonNamesTest, ATensorWhoseMemoryIsGoneOrGivenBackIsNotRead) {
  TensorObject weight(at::zeros({8}));
  Add(weight, "weight", encoder_);
  const NamedTensor& named = *names_.FindByImpl(weight.impl());
  weight.storage()->set_nbytes(31);
  ASSERT_TRUE(names_.Read(named).has_value());
  EXPECT_EQ(names_.Read(named)->data, nullptr);
  const at::Tensor elsewhere = at::zeros({8});
  weight.impl()->set_storage_keep_dtype(elsewhere.storage());
  EXPECT_FALSE(names_.Read(named).has_value());
}

TEST_F(PythonNamesTest, AModelIsTakenToHaveMovedOnceSomethingBadCameInWithoutAName) {
  std::deque<TensorObject> weights;
  weights.emplace_back(at::zeros({2}));
  Add(weights.back(), "weight", encoder_);
  Root root;
  root.tensors = names_.TensorsOf(&root_);
  EXPECT_FALSE(names_.Moved(root));
  int seen = 0;
  for (int i = 0; i < 1000; ++i) {
    names_.ExpectReplaced();
    seen += names_.Moved(root);
  }
  EXPECT_EQ(seen, 10) << "the 1st, 2nd, 4th, ..., 512th";
  EXPECT_FALSE(names_.Moved(root));
}

TEST_F(PythonNamesTest, AModelIsSeenToHaveMovedWhenOneOfItsTensorsHasOtherMemory) {
  std::deque<TensorObject> weights;
  for (int i = 0; i < 5; ++i) {
    weights.emplace_back(at::zeros({2}));
    Add(weights.back(), std::to_string(i).c_str(), encoder_);
  }
  Root root;
  EXPECT_FALSE(names_.Moved(root)) << "nothing was noted for it";
  root.tensors = names_.TensorsOf(&root_);
  ASSERT_NE(root.tensors, nullptr);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(names_.Moved(root));
  const at::Tensor elsewhere = at::zeros({2});
  weights[3].impl()->set_storage_keep_dtype(elsewhere.storage());
  int seen = 0;
  for (int i = 0; i < 5; ++i) seen += names_.Moved(root);
  EXPECT_EQ(seen, 1) << "a different one is looked at each time";
  weights[0].impl()->set_storage_keep_dtype(elsewhere.storage());
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(names_.Moved(root)) << "the first one is each time";
}

TEST_F(PythonNamesTest, AModelThatIsForgottenLeavesTheNamesOfOthers) {
  TensorObject weight(at::zeros({2}));
  TensorObject other(at::zeros({2}));
  Add(weight, "weight", encoder_);
  Add(other, "weight", other_root_);
  const NamedTensor& named = *names_.FindByImpl(weight.impl());
  names_.ForgetRoot(&root_);
  EXPECT_EQ(NameOf(weight), "");
  EXPECT_EQ(names_.FindByStorage(weight.storage()), nullptr);
  EXPECT_FALSE(names_.Read(named).has_value());
  EXPECT_STREQ(named.name, "encoder.weight") << "what was kept of it stays";
  EXPECT_EQ(NameOf(other), "weight");
  EXPECT_EQ(All(), std::vector<std::string>{"weight"});
  Add(weight, "weight", encoder_);
  EXPECT_EQ(NameOf(weight), "encoder.weight");
}

TEST_F(PythonNamesTest, BuffersAreFoundAmongParameters) {
  TensorObject weight(at::zeros({2}));
  TensorObject mean(at::zeros({2}));
  Add(weight, "weight", encoder_);
  EXPECT_FALSE(names_.HasBuffers());
  Add(mean, "running_mean", encoder_, NamedTensorKind::kBuffer);
  EXPECT_TRUE(names_.HasBuffers());
  std::vector<std::string> buffers;
  names_.ForEachBuffer([&](const NamedTensor& named) { buffers.emplace_back(named.name); });
  EXPECT_EQ(buffers, std::vector<std::string>{"encoder.running_mean"});
}

TEST_F(PythonNamesTest, EachLayerHasItsOwnTensorsAndEachModelAllOfThem) {
  TensorObject weight(at::zeros({2}));
  TensorObject bias(at::zeros({2}));
  TensorObject other(at::zeros({2}));
  Add(weight, "weight", encoder_);
  Add(bias, "bias", root_);
  Add(other, "weight", other_root_);
  std::vector<std::string> of_layer;
  std::vector<std::string> of_root;
  names_.ForEachOwnedBy(&encoder_, [&](const NamedTensor& n) { of_layer.emplace_back(n.name); });
  names_.ForEachInRoot(&root_, [&](const NamedTensor& n) { of_root.emplace_back(n.name); });
  EXPECT_EQ(of_layer, std::vector<std::string>{"encoder.weight"});
  EXPECT_EQ(of_root, (std::vector<std::string>{"encoder.weight", "bias"}));
}

TEST_F(PythonNamesTest, AreUnusableForGoodWhereAnObjectIsNotLaidOutAsIsKnown) {
  alignas(16) uintptr_t words[8] = {};
  EXPECT_EQ(names_.TensorOf(reinterpret_cast<PyObj*>(words)), nullptr);
  EXPECT_TRUE(names_.unusable());
  TensorObject weight(at::zeros({2}));
  Add(weight, "weight", encoder_);
  EXPECT_EQ(NameOf(weight), "") << "no layout is guessed";
}

TEST(HeldStorage, IsTakenWhileItLives) {
  EXPECT_FALSE(TakeStorage(nullptr));
  at::Tensor tensor = at::zeros({2});
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  c10::raw::weak_intrusive_ptr::incref(storage);
  EXPECT_EQ(TakeStorage(storage).get(), storage);
  EXPECT_EQ(tensor.storage().use_count(), 1u) << "and let go again";
  {
    const auto held = TakeStorage(storage);
    tensor.reset();
    EXPECT_EQ(held.use_count(), 1u);
  }
  EXPECT_FALSE(TakeStorage(storage));
  c10::raw::weak_intrusive_ptr::decref(storage);
}

// Torch would take the GIL to share it.
TEST(HeldStorage, IsNotTakenFromItsPythonObjectAlone) {
  const at::Tensor tensor = at::zeros({2});
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  uintptr_t object[2] = {};
  storage->pyobj_slot()->store_pyobj(reinterpret_cast<PyObject*>(object));
  EXPECT_EQ(PythonObjectIn(storage->pyobj_slot()), object);
  EXPECT_FALSE(TakeStorage(storage));
  const at::Tensor second = tensor.view({2, 1});
  EXPECT_TRUE(TakeStorage(storage));
  storage->pyobj_slot()->clear();
}

}  // namespace
}  // namespace nanwatch

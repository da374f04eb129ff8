// SPDX-License-Identifier: Apache-2.0
// Which layer a module object is. Modules are addresses here that nobody reads.
#include "shim/observe/python/names/layer_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <thread>

namespace nanwatch {
namespace {

PyObj* ModuleAt(uintptr_t number) { return reinterpret_cast<PyObj*>(number << 4); }

class LayerTableTest : public testing::Test {
 protected:
  Root& NewModel(const char* type) {
    Root& root = *table_->NewRoot(type);
    root.layer = table_->Intern(root, "", type, nullptr);
    return root;
  }
  void Put(uintptr_t module, const Layer* layer, Root* root) {
    ModuleEntry entry;
    entry.module = ModuleAt(module);
    entry.layer = layer;
    entry.root = root;
    table_->Put(entry);
  }
  const ModuleEntry* Find(uintptr_t module) { return table_->Find(ModuleAt(module)); }

  // Leaks its layers, as in the job.
  std::unique_ptr<LayerTable> table_ = std::make_unique<LayerTable>();
};

TEST_F(LayerTableTest, GivesOneLayerForEachPathAndClassOfARoot) {
  Root& root = NewModel("Net");
  const Layer* linear = table_->Intern(root, "encoder.0", "Linear", root.layer);
  EXPECT_EQ(table_->Intern(root, "encoder.0", "Linear", root.layer), linear);
  EXPECT_NE(table_->Intern(root, "encoder.0", "Conv2d", root.layer), linear)
      << "another module has taken its place";
  EXPECT_NE(table_->Intern(root, "encoder.1", "Linear", root.layer), linear);
  EXPECT_NE(table_->Intern(NewModel("Net"), "encoder.0", "Linear", nullptr), linear);
}

TEST_F(LayerTableTest, APathAndAClassThatReadTheSameTogetherAreTwo) {
  Root& root = NewModel("Net");
  EXPECT_NE(table_->Intern(root, "ab", "c", nullptr), table_->Intern(root, "a", "bc", nullptr));
}

TEST_F(LayerTableTest, ALayerKnowsItsPlace) {
  Root& root = NewModel("Net");
  std::string path = "encoder";
  const Layer* encoder = table_->Intern(root, path, "Sequential", root.layer);
  path[0] = 'X';
  EXPECT_STREQ(encoder->path, "encoder") << "the text is its own";
  EXPECT_STREQ(encoder->type, "Sequential");
  EXPECT_STREQ(encoder->root, "Net#0");
  EXPECT_EQ(encoder->parent, root.layer);
  EXPECT_EQ(encoder->root_layer, root.layer);
  EXPECT_EQ(root.layer->root_layer, root.layer);
  EXPECT_EQ(root.layer->parent, nullptr);
}

TEST_F(LayerTableTest, LayersAreNumberedWithoutGapsBehindTheUnnamedOne) {
  EXPECT_EQ(table_->unnamed()->index, 0u);
  Root& root = NewModel("Net");
  std::set<uint32_t> indices = {root.layer->index};
  for (int i = 0; i < 100; ++i) {
    indices.insert(table_->Intern(root, std::to_string(i), "Linear", root.layer)->index);
  }
  EXPECT_EQ(indices.size(), 101u);
  EXPECT_EQ(*indices.begin(), 1u);
  EXPECT_EQ(*indices.rbegin(), 101u);
  EXPECT_EQ(table_->layer_count(), 102u);
}

TEST_F(LayerTableTest, RootsAreNumberedByTheirClass) {
  EXPECT_STREQ(NewModel("Net").name, "Net#0");
  EXPECT_STREQ(NewModel("Head").name, "Head#0");
  EXPECT_STREQ(NewModel("Net").name, "Net#1");
}

TEST_F(LayerTableTest, ARootThatIsGoneLeavesItsNumberTaken) {
  table_->RemoveRoot(&NewModel("Net"));
  EXPECT_TRUE(table_->roots().empty());
  EXPECT_STREQ(NewModel("Net").name, "Net#1");
}

TEST_F(LayerTableTest, KnowsNoModuleThatWasNotEntered) {
  Root& root = NewModel("Net");
  EXPECT_EQ(Find(1), nullptr);
  Put(1, root.layer, &root);
  EXPECT_EQ(Find(2), nullptr);
  ASSERT_NE(Find(1), nullptr);
  EXPECT_EQ(Find(1)->layer, root.layer);
}

TEST_F(LayerTableTest, TheLastThatIsSaidOfAModuleCounts) {
  Root& root = NewModel("Net");
  const Layer* layer = table_->Intern(root, "a", "Linear", nullptr);
  Put(1, root.layer, &root);
  Put(1, layer, &root);
  EXPECT_EQ(Find(1)->layer, layer);
}

TEST_F(LayerTableTest, FindsEveryModuleAsItGrows) {
  Root& root = NewModel("Net");
  for (uintptr_t module = 1; module <= 20'000; ++module) Put(module, root.layer, &root);
  for (uintptr_t module = 1; module <= 20'000; ++module) {
    ASSERT_NE(Find(module), nullptr) << module;
    ASSERT_EQ(Find(module)->module, ModuleAt(module));
  }
  EXPECT_EQ(Find(20'001), nullptr);
}

TEST_F(LayerTableTest, ForgettingARootLeavesModulesOfOthersAndThoseRegisteredNowhere) {
  Root& root = NewModel("Net");
  Root& other = NewModel("Head");
  for (uintptr_t module = 1; module <= 300; ++module) Put(module, root.layer, &root);
  Put(400, nullptr, &root);
  Put(500, other.layer, &other);
  table_->Forget(&root, /*all=*/false);
  for (uintptr_t module = 1; module <= 300; ++module) ASSERT_EQ(Find(module), nullptr);
  EXPECT_NE(Find(400), nullptr);
  EXPECT_NE(Find(500), nullptr);
  table_->Forget(&root, /*all=*/true);
  EXPECT_EQ(Find(400), nullptr);
  EXPECT_NE(Find(500), nullptr);
}

// Modules that collide lie behind each other: taking one out may not hide the next.
TEST_F(LayerTableTest, ForgettingOneOfManyCollidingModulesHidesNoOther) {
  Root& root = NewModel("Net");
  Root& other = NewModel("Head");
  for (uintptr_t module = 1; module <= 500; ++module) {
    Put(module, root.layer, module % 2 == 0 ? &root : &other);
  }
  table_->Forget(&root, /*all=*/true);
  for (uintptr_t module = 1; module <= 500; ++module) {
    ASSERT_EQ(Find(module) != nullptr, module % 2 == 1) << module;
  }
}

TEST_F(LayerTableTest, LayersOutliveTheirRoot) {
  Root& root = NewModel("Net");
  const Layer* layer = table_->Intern(root, "encoder", "Linear", root.layer);
  Put(1, layer, &root);
  table_->RemoveRoot(&root);
  EXPECT_EQ(Find(1), nullptr);
  EXPECT_STREQ(layer->path, "encoder");
  EXPECT_STREQ(layer->root, "Net#0");
}

TEST_F(LayerTableTest, AModelThatIsMadeAnewAtAnAddressFreedHasItsOwnLayers) {
  Root& old_root = NewModel("Net");
  Put(1, old_root.layer, &old_root);
  table_->RemoveRoot(&old_root);
  Root& root = NewModel("Net");
  Put(1, root.layer, &root);
  EXPECT_EQ(Find(1)->root, &root);
  EXPECT_NE(root.layer, old_root.layer);
}

TEST_F(LayerTableTest, WithoutRoomForMoreLayersNewOnesHaveNoNameAndOldOnesKeepTheirs) {
  Root& root = NewModel("Net");
  const Layer* first = table_->Intern(root, "first", "Linear", root.layer);
  for (uint32_t i = table_->layer_count(); i < kLayersMax; ++i) {
    ASSERT_NE(table_->Intern(root, std::to_string(i), "Linear", root.layer), table_->unnamed());
  }
  EXPECT_EQ(table_->Intern(root, "one more", "Linear", root.layer), table_->unnamed());
  EXPECT_EQ(table_->Intern(root, "first", "Linear", root.layer), first);
  EXPECT_EQ(table_->layer_count(), kLayersMax);
  EXPECT_STREQ(NewModel("Late").name, "");
}

TEST_F(LayerTableTest, WithoutRoomForMoreModulesKnownOnesAreStillReplaced) {
  constexpr uintptr_t kModulesMax = uintptr_t{1} << 18;
  Root& root = NewModel("Net");
  for (uintptr_t module = 1; module <= kModulesMax + 10; ++module) {
    Put(module, nullptr, &root);
  }
  EXPECT_NE(Find(kModulesMax), nullptr);
  EXPECT_EQ(Find(kModulesMax + 1), nullptr);
  Put(1, root.layer, &root);
  EXPECT_EQ(Find(1)->layer, root.layer);
  table_->Forget(&root, /*all=*/true);
  Put(kModulesMax + 1, root.layer, &root);
  EXPECT_NE(Find(kModulesMax + 1), nullptr) << "there is room again";
}

TEST(ScopeOfAThread, IsItsOwn) {
  Layer layer;
  scope_stack.top = &layer;
  scope_stack.depth = 2;
  MarkCompiledRegion();
  EXPECT_EQ(CurrentLayer(), &layer);
  EXPECT_EQ(ScopeDepth(), 2u);
  EXPECT_TRUE(scope_stack.compiled_region);
  const Layer* seen = &layer;
  uint32_t depth = 9;
  bool compiled = true;
  std::thread([&] {
    seen = CurrentLayer();
    depth = ScopeDepth();
    compiled = scope_stack.compiled_region;
  }).join();
  EXPECT_EQ(seen, nullptr);
  EXPECT_EQ(depth, 0u);
  EXPECT_FALSE(compiled);
  scope_stack = {};
}

}  // namespace
}  // namespace nanwatch

# SPDX-License-Identifier: Apache-2.0
"""A value that is not finite and was made while a DataLoader fetched samples: which index the loader had asked for, or that
nobody knows. Here the loader runs in the training's own process; promises/other_processes has the workers.
"""
from training import training
from watched_program import WatchedProgramTest, main

DATA = """
from torch.utils.data import (BatchSampler, ConcatDataset, DataLoader, Dataset, IterableDataset, SequentialSampler, StackDataset,
                              Subset, SubsetRandomSampler, TensorDataset)

class Samples(Dataset):
    bad = (14,)

    def __len__(self):
        return 24

    def __getitem__(self, i):
        row = torch.randn(6, generator=torch.Generator().manual_seed(hash(i) % 1000))
        return self.scaled(row * 0 if i in self.bad else row)

    def scaled(self, row):
        return row / row.std()

def collate(rows):
    batch = torch.stack(rows)
    return batch / batch.std(1, keepdim=True)
"""

ROWS = """
table = np.random.RandomState(0).randn(24, 6).astype("float32")
table[14, 2] = np.nan
class Rows(Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, i):
        return table[i]
"""


def fetched(loader, more="", steps=6, loss="model(next(batches)).pow(2).mean()"):
    return training(DATA + more, model="nn.Linear(6, 2)", prepare=f"batches = iter({loader})", loss=loss, steps=steps)


class Samples(WatchedProgramTest):
    def samples(self, text, **origin):
        found = self.assert_anomaly(text, **origin)["origin"]["samples"]
        return found and (found["indices"], found["of_batch"], found["whole_batch"])

    def test_sample_of_a_batch(self):
        self.assertEqual(self.samples(fetched("DataLoader(Samples(), 4)"), op="aten::div", step=3), (["14"], 4, False))

    def test_shuffled_sample(self):
        text = fetched("DataLoader(Samples(), 4, shuffle=True, generator=torch.Generator().manual_seed(5))")
        self.assertEqual(self.samples(text, op="aten::div"), (["14"], 4, False))

    def test_third_bad_sample_is_the_first_that_matters(self):
        text = fetched("DataLoader(Samples(), 4)", "Samples.bad = (1, 6, 9, 14)",
                       loss="model(next(batches) if step > 2 else torch.nan_to_num(next(batches))).pow(2).mean()")
        self.assertEqual(self.samples(text, op="aten::div"), (["14"], 4, False))

    def test_collate_function_knows_the_batch_only(self):
        text = fetched("DataLoader(Samples(), 4, collate_fn=collate)", "Samples.scaled = lambda self, row: row")
        self.assertEqual(self.samples(text, op="aten::div", step=3), (["12", "13", "14", "15"], 4, True))

    def test_data_set_that_fetches_whole_batches(self):
        text = fetched("DataLoader(Samples(), 4)",
                       "Samples.__getitems__ = lambda self, indices: [self[i] for i in indices]")
        self.assertEqual(self.samples(text, op="aten::div", step=3), (["12", "13", "14", "15"], 4, True))

    def test_index_of_a_subset_is_the_one_the_loader_asked_for(self):
        text = fetched("DataLoader(Subset(Samples(), [14, 3, 5, 7, 14, 2]), 2)", steps=1)
        self.assertEqual(self.samples(text, op="aten::div", step=0), (["0"], 2, False))

    def test_subset_of_a_subset_knows_the_batch_only(self):
        text = fetched("DataLoader(Subset(Subset(Samples(), list(range(10, 20))), [0, 1, 4, 5]), 2)", steps=2)
        self.assertEqual(self.samples(text, op="aten::div", step=1), (["2", "3"], 2, True))

    def test_stacked_data_sets_know_the_batch_only(self):
        text = fetched("DataLoader(StackDataset(Samples(), Samples()), 4)",
                       loss="sum(model(part).pow(2).mean() for part in next(batches))")
        self.assertEqual(self.samples(text, op="aten::div", step=3), (["12", "13", "14", "15"], 4, True))

    def test_concatenated_data_sets(self):
        text = fetched("DataLoader(ConcatDataset([Samples(), Samples()]), 4, "
                       "sampler=[1, 2, 3, 4, 5, 24 + 14, 6, 7])", steps=2)
        self.assertEqual(self.samples(text, op="aten::div", step=1), (["38"], 4, False))

    def test_keys_that_are_texts(self):
        text = fetched("DataLoader(Samples(), 2, sampler=['a', 'b', 'it\\'s', 'd'])", "Samples.bad = (\"it's\",)", steps=2)
        self.assertEqual(self.samples(text, op="aten::div", step=1), ([r"'it\'s'"], 2, False))

    def test_keys_that_are_tuples(self):
        text = fetched("DataLoader(Samples(), 2, sampler=[(0, 'a'), (1, 'b'), (2, 'c'), (3, 'd')])", "Samples.bad = ((2, 'c'),)",
                       steps=2)
        self.assertEqual(self.samples(text, op="aten::div", step=1), (["(2, 'c')"], 2, False))

    def test_long_text(self):
        text = fetched("DataLoader(Samples(), 1, sampler=['x' * 50])", "Samples.bad = ('x' * 50,)", steps=1)
        self.assertEqual(self.samples(text, op="aten::div"), (["'" + "x" * 40 + "'..."], 1, False))

    def test_numbers_of_numpy(self):
        text = fetched("DataLoader(Samples(), 4, sampler=SubsetRandomSampler(np.arange(8, 16)))", steps=2)
        self.assertEqual(self.samples(text, op="aten::div"), (["14"], 4, False))

    def test_huge_and_negative_indices(self):
        text = fetched("DataLoader(Samples(), 2, sampler=[-3, 2**62, -2**63, 5])", "Samples.bad = (-2**63,)", steps=2)
        self.assertEqual(self.samples(text, op="aten::div", step=1), ([str(-2**63)], 2, False))

    def test_single_samples(self):
        text = fetched("DataLoader(Samples(), batch_size=None)", steps=16)
        self.assertEqual(self.samples(text, op="aten::div", step=14), (["14"], 0, False))

    def test_batches_that_are_indices(self):
        text = fetched("DataLoader(Samples(), batch_size=None, sampler=BatchSampler(SequentialSampler(range(8)), 4, False))",
                       "Samples.__getitem__ = lambda self, rows: self.scaled(torch.zeros(len(rows), 6) if rows[0] else "
                       "torch.rand(4, 6))", steps=2)
        self.assertEqual(self.samples(text, op="aten::div", step=1), (["4", "5", "6", "7"], 4, True))

    def test_large_batch_is_cut(self):
        text = fetched("DataLoader(Samples(), 20, collate_fn=collate)", "Samples.scaled = lambda self, row: row", steps=1)
        self.assertEqual(self.samples(text, op="aten::div"), ([str(i) for i in range(16)], 20, True))

    def test_row_of_numpy_that_came_in(self):
        self.assertEqual(self.samples(fetched("DataLoader(Rows(), 4)", ROWS), kind="input_data", step=3), (["14"], 4, False))

    def test_first_bad_array_of_a_shuffled_batch(self):
        text = fetched("DataLoader(Rows(), 4, sampler=[5, 14, 3, 15, 1, 2])", ROWS + "table[15, 0] = np.inf", steps=1)
        self.assertEqual(self.samples(text, kind="input_data", step=0), (["14"], 4, False))

    def test_bad_tensors_of_a_shuffled_batch(self):
        text = fetched("DataLoader(Rows(), 4, sampler=[5, 14, 3, 15, 1, 2])", ROWS + """
whole = torch.from_numpy(np.zeros_like(table))
whole.numpy()[:] = table
whole.numpy()[15, 0] = np.inf
Rows.__getitem__ = lambda self, i: whole[i]
""", steps=1)
        self.assertEqual(self.samples(text, kind="input_data", step=0), (["14", "15"], 4, False))

    def test_field_of_a_row(self):
        text = fetched("DataLoader(Rows(), 4)", ROWS + """
Rows.__getitem__ = lambda self, i: {"y": i, "x": (torch.zeros(2), [torch.from_numpy(table[i])])}
""", loss="model(next(batches)['x'][1][0]).pow(2).mean()")
        self.assertEqual(self.samples(text, kind="input_data", step=3), (["14"], 4, False))

    def test_table_in_memory(self):
        text = fetched("DataLoader(TensorDataset(torch.from_numpy(table)), 4)", ROWS, loss="model(next(batches)[0]).pow(2).mean()")
        self.assertEqual(self.samples(text, kind="input_data", step=3), (["14"], 4, False))

    def test_row_of_a_subset(self):
        text = fetched("DataLoader(Subset(Rows(), [14, 1, 2]), 3)", ROWS, steps=1)
        self.assertEqual(self.samples(text, kind="input_data", step=0), (["0"], 3, False))

    def test_collate_function_with_an_order_of_its_own_knows_the_batch_only(self):
        text = fetched("DataLoader(Rows(), 4, collate_fn=lambda rows: torch.utils.data.default_collate(rows[::-1]))", ROWS)
        self.assertEqual(self.samples(text, kind="input_data", step=3), (["12", "13", "14", "15"], 4, True))


class NotKnown(WatchedProgramTest):
    def assert_none(self, text, **origin):
        self.assertIsNone(self.assert_anomaly(text, **origin)["origin"]["samples"])

    def test_stream_has_no_indices(self):
        self.assert_none(fetched("DataLoader(Stream(), 4)", """
class Stream(IterableDataset):
    def __iter__(self):
        for i in range(24):
            yield Samples()[i]
"""), op="aten::div", step=3)

    def test_index_of_another_type(self):
        self.assert_none(fetched("DataLoader(Samples(), 1, sampler=[14.0])", steps=1), op="aten::div")

    def test_truth_is_no_number(self):
        self.assert_none(fetched("DataLoader(Samples(), 1, sampler=[True])", "Samples.bad = (1,)", steps=1), op="aten::div")

    def test_loader_within_a_loader(self):
        self.assert_none(fetched("DataLoader(Outer(), 2)", """
class Outer(Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, i):
        return next(iter(DataLoader(Subset(Samples(), [7 * i]), 1)))[0]
""", steps=2), op="aten::div", step=1)

    def test_what_the_training_makes_of_a_batch(self):
        self.assert_none(fetched("DataLoader(Samples(), 4)", "Samples.bad = ()",
                                 loss="torch.log(model(next(batches)).pow(2).mean() * (-1 if step == 2 else 1))"), op="aten::log", step=2)

    def test_value_that_was_made_before_and_is_used_for_each_sample(self):
        self.assert_none(fetched("DataLoader(Samples(), 4)", """
scale = torch.zeros(1) / torch.zeros(1)
Samples.scaled = lambda self, row: row * scale
"""), op="aten::div")

    def test_function_of_the_same_name(self):
        self.assert_none(training(DATA, model="nn.Linear(6, 2)", prepare="""
            def fetch(possibly_batched_index):
                return torch.stack([Samples()[idx] for idx in possibly_batched_index])""",
                                  loss="model(fetch([12, 13, 14])).pow(2).mean()"), op="aten::div", step=0)


if __name__ == "__main__":
    main()
